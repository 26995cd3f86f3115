"""Clusters that leave the machine, tried on this one: TLS, ssh and SLURM."""

import getpass
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import dask
import distributed
import psutil
import pytest
from distributed import Client

from cluster import encryption
from cluster.slurm import launch as slurm
from cluster.ssh import launch as ssh
from cluster.tls import certificates
from cluster.tls import launch as tls
from dsgp.compute import connected
from dsgp.errors import ParameterError

# What a user would run on it.
COMMAND = [
    sys.executable,
    "-c",
    "import sys; from distributed import Client\n"
    "with Client(sys.argv[-1]) as client:\n"
    "    client.wait_for_workers(2, timeout=60)\n"
    "    print('sum', sum(client.gather(client.map(abs, range(-4, 1)))), sys.argv[-1][:6])",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls") / "certificates"
    assert certificates.main(["--out", str(folder)]) == 0
    return folder


def written(tmp_path, **settings):
    path = tmp_path / "config.yaml"
    path.write_text("".join(f"{key}: {setting}\n" for key, setting in settings.items()))
    return str(path)


# ---------------------------------------------------------------- TLS


def test_the_key_is_private_and_nothing_is_overwritten(folder, tmp_path, capsys):
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / encryption.KEY).stat().st_mode) == 0o600
    with pytest.raises(SystemExit):
        certificates.main(["--out", str(folder)])
    assert "is there already" in capsys.readouterr().err
    loose = tmp_path / "loose"
    shutil.copytree(folder, loose)
    (loose / encryption.KEY).chmod(0o644)
    with pytest.raises(ParameterError, match=r"may read .*chmod 600"):
        encryption.files(loose)
    (loose / encryption.CERTIFICATE).unlink()
    with pytest.raises(ParameterError, match=r"has no node\.pem; make them"):
        encryption.files(loose)


def test_who_has_no_certificate_of_the_authority_is_refused(folder, tmp_path):
    other = tmp_path / "other"
    certificates.make(other, 1)
    recipe = tls.Encrypted(
        tls_directory=folder, port=0, n_workers=1, memory_limit="512 MiB", dashboard_port=None
    )
    with tls.start(recipe) as running:
        assert running.address.startswith("tls://127.0.0.1:")
        with connected(running.address):
            assert distributed.get_client().submit(abs, -3).result(timeout=30) == 3
        plain = running.address.replace("tls://", "tcp://")
        nobody = {
            f"distributed.comm.tls.{role}.{part}": None
            for role in ("client", "scheduler", "worker")
            for part in ("cert", "key")
        }
        plainly = {"distributed.comm.require-encryption": False}
        refused = [
            (running.address, nobody),
            (running.address, encryption.dask_settings(other)),
            (plain, plainly),
        ]
        for address, settings in refused:
            with (
                dask.config.set(settings | {"distributed.comm.timeouts.connect": "3s"}),
                pytest.raises(ParameterError, match="no dask scheduler"),
                connected(address),
            ):
                pass


def test_a_command_runs_encrypted(folder, tmp_path, capfd):
    config = written(
        tmp_path, tls_directory=folder, port=0, n_workers=2, memory_limit="512 MiB",
        wait_for_workers=2,
    )  # fmt: skip
    assert tls.main(["--config", config, "--", *COMMAND]) == 0
    assert "sum 10 tls://" in capfd.readouterr().out


def test_workers_that_do_not_come_are_reported(folder, tmp_path, capsys):
    config = written(
        tmp_path, tls_directory=folder, port=0, n_workers=0, wait_for_workers=1, wait_at_most=1
    )
    with pytest.raises(SystemExit):
        tls.main(["--config", config, "--", "true"])
    assert "0 of 1 workers came in 1 s" in capsys.readouterr().err


# ---------------------------------------------------------------- ssh


@pytest.fixture
def sshd(tmp_path):
    """A server of ssh on loopback that takes one key, and how it is reached."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("needs sshd")
    for name in ("host", "user"):
        key = str(tmp_path / name)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd of root wants it
    (tmp_path / "authorized").write_bytes((tmp_path / "user.pub").read_bytes())
    public = (tmp_path / "host.pub").read_text().split()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
    config = tmp_path / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path / 'host'}\n"
        f"AuthorizedKeysFile {tmp_path / 'authorized'}\nStrictModes no\nUsePAM no\n"
        f"PasswordAuthentication no\nPidFile none\n"
    )
    process = subprocess.Popen([program, "-D", "-f", str(config)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while socket.socket().connect_ex(("127.0.0.1", port)):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.skip("sshd does not start here")
        time.sleep(0.1)
    yield {
        "hosts": ["127.0.0.1", "127.0.0.1"],
        "username": getpass.getuser(),
        "ssh_port": port,
        "ssh_keys": [str(tmp_path / "user")],
        "known_hosts": tmp_path / "known",
        "interface": "lo",
        "workers_per_host": 2,
        "memory_limit": "512 MiB",
        "dashboard_port": 0,
    }
    process.terminate()
    process.communicate(timeout=20)


def started_by_ssh():
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if "distributed.cli.dask_spec" in (process.info["cmdline"] or [])
    ]


def test_workers_by_ssh(folder, sshd, tmp_path, capfd):
    before = {process.pid for process in started_by_ssh()}
    config = written(tmp_path, tls_directory=folder, **sshd)
    assert ssh.main(["--config", config, "--", *COMMAND]) == 0
    out = capfd.readouterr().out
    assert "sum 10 tls://" in out
    assert "ssh -L" in out
    ours = [process for process in started_by_ssh() if process.pid not in before]
    _, alive = psutil.wait_procs(ours, timeout=30)
    assert alive == []


def test_a_host_whose_key_is_not_known_is_refused(folder, sshd, tmp_path, capsys):
    (tmp_path / "known").write_text("")
    config = written(tmp_path, tls_directory=folder, **sshd)
    with pytest.raises(SystemExit):
        ssh.main(["--config", config, "--", "true"])
    assert "Host key is not trusted" in capsys.readouterr().err


def test_hosts_without_the_certificates_are_named_before_anything_starts(
    folder, sshd, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(ssh, "SSHCluster", lambda *_, **__: pytest.fail("started"))
    there = (folder / "ca.pem", folder / "node.pem", tmp_path / "other-home" / "node-key.pem")
    monkeypatch.setattr(ssh.encryption, "files", lambda _: there)
    config = written(tmp_path, tls_directory=folder, **sshd)
    with pytest.raises(SystemExit):
        ssh.main(["--config", config, "--", "true"])
    told = capsys.readouterr().err
    assert f"{getpass.getuser()} cannot read node-key.pem in" in told
    assert "on 127.0.0.1: copy them" in told


# ---------------------------------------------------------------- SLURM


@pytest.fixture
def one_node(tmp_path, monkeypatch):
    """A SLURM of this machine only, on loopback."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    programs = [shutil.which(name, path=path) for name in ("slurmctld", "slurmd", "sbatch")]
    if None in programs or os.geteuid():
        pytest.skip("needs slurmctld, slurmd and sbatch, and to be root")
    host = socket.gethostname().split(".")[0]
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    config = tmp_path / "slurm.conf"
    for name in ("state", "spool"):
        (tmp_path / name).mkdir()
    config.write_text(
        f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nAuthType=auth/none\n"
        "CredType=cred/none\nSlurmUser=root\nSlurmdUser=root\n"
        f"SlurmctldPort={ports[0]}\nSlurmdPort={ports[1]}\n"
        f"StateSaveLocation={tmp_path / 'state'}\nSlurmdSpoolDir={tmp_path / 'spool'}\n"
        f"SlurmctldPidFile={tmp_path / 'ctld.pid'}\nSlurmdPidFile={tmp_path / 'd.pid'}\n"
        f"SlurmctldLogFile={tmp_path / 'ctld.log'}\nSlurmdLogFile={tmp_path / 'd.log'}\n"
        "ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSelectType=select/cons_tres\n"
        "SelectTypeParameters=CR_Core\nReturnToService=2\nSlurmdParameters=config_overrides\n"
        f"NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN\n"
        f"PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP\n"
    )
    monkeypatch.setenv("SLURM_CONF", str(config))
    daemons = [
        subprocess.Popen([programs[0], "-D"], stderr=subprocess.DEVNULL),
        subprocess.Popen([programs[1], "-D", "-N", host], stderr=subprocess.DEVNULL),
    ]
    deadline = time.monotonic() + 30
    while (
        "idle"
        not in subprocess.run(
            ["sinfo", "--noheader", "--format", "%T"], capture_output=True, text=True, check=False
        ).stdout
    ):
        if time.monotonic() > deadline:
            pytest.skip("SLURM does not start here")
        time.sleep(0.3)
    yield tmp_path
    subprocess.run(["scancel", "--full", "--user", getpass.getuser()], check=False)
    for process in reversed(daemons):
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def jobs():
    listed = subprocess.run(
        ["squeue", "--noheader", "--states", "R,PD", "--format", "%i"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return listed.stdout.split()


def test_workers_as_jobs_of_slurm(folder, one_node, tmp_path, capfd):
    config = written(
        tmp_path, tls_directory=folder, memory_limit="1 GiB", minimum_jobs=2, maximum_jobs=2,
        wait_for_workers=2, wait_at_most=60, interface="lo", log_directory=tmp_path / "logs",
    )  # fmt: skip
    assert slurm.main(["--config", config, "--", *COMMAND]) == 0
    assert "sum 10 tls://" in capfd.readouterr().out
    deadline = time.monotonic() + 30
    while jobs() and time.monotonic() < deadline:
        time.sleep(0.3)
    assert jobs() == []


def test_a_job_that_ends_is_replaced(folder, one_node, tmp_path):
    recipe = slurm.Slurm(
        tls_directory=folder, memory_limit="1 GiB", minimum_jobs=1, maximum_jobs=1,
        wait_for_workers=1, wait_at_most=60, interface="lo", log_directory=tmp_path / "logs",
    )  # fmt: skip
    with slurm.start(recipe) as running, Client(running.address) as client:
        (first,) = jobs()
        (before,) = client.scheduler_info()["workers"]
        subprocess.run(["scancel", "--signal=KILL", "--full", first], check=True)
        deadline = time.monotonic() + 90
        while set(client.scheduler_info()["workers"]) <= {before}:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert client.submit(abs, -5).result(timeout=30) == 5


def test_without_slurm_it_says_so(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    config = written(tmp_path, tls_directory=folder)
    with pytest.raises(SystemExit):
        slurm.main(["--config", config, "--", "true"])
    assert "there is no sbatch here" in capsys.readouterr().err
