"""Make an authority, a certificate and its key for the processes of one cluster.

``python cluster/tls/certificates.py --out ~/.dsgp-tls``
"""

import argparse
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cluster.encryption import AUTHORITY, CERTIFICATE, KEY


def make(folder: Path, days: int) -> None:
    """Write the three files.

    The authority signs this one certificate and its own key is dropped: nobody can sign another.
    Dask takes any certificate of the authority and does not compare the names of hosts.

    Raises
    ------
    FileExistsError
        If the folder is there already.
    """
    folder.mkdir(mode=0o700, parents=True)
    start = datetime.now(UTC) - timedelta(minutes=5)  # clocks of other machines may be behind
    end = start + timedelta(days=days)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("dsgp cluster authority")
    authority = (
        x509.CertificateBuilder()
        .subject_name(authority_name)
        .issuer_name(authority_name)
        .public_key(authority_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name("dsgp cluster node"))
        .issuer_name(authority_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / AUTHORITY).write_bytes(authority.public_bytes(pem))
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(private)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def main(arguments: list[str] | None = None) -> int:
    """Make the files; return an exit code."""
    parser = argparse.ArgumentParser(prog="certificates.py", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--days", type=int, default=365, metavar="N", help="how long they hold (default: 365)"
    )
    asked = parser.parse_args(arguments)
    if asked.days < 1:
        parser.error(f"--days must be 1 or more, got {asked.days}")
    folder = asked.out.expanduser()
    try:
        make(folder, asked.days)
    except FileExistsError:
        parser.error(f"{str(folder)!r} is there already; choose another --out, or remove it")
    except OSError as error:
        parser.error(f"cannot write into {str(folder)!r}: {error.strerror}")
    print(f"certificates for {asked.days} days in {folder}; copy it to the same path of each host")
    return 0


if __name__ == "__main__":
    sys.exit(main())
