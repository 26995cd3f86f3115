"""Faults after which a job goes on, to the same bits as without."""

import os
import signal

import dask
import pytest


def test_a_worker_is_killed_and_replaced(cluster, running, kind, expected):
    job = running(cluster.address, kind)
    cluster.kill()
    cluster.add()
    job.go_on()
    job.require(expected[kind])


def test_all_workers_are_gone_and_come_back(cluster, running, kind, expected):
    with dask.config.set({"distributed.scheduler.no-workers-timeout": "60s"}):
        job = running(cluster.address, kind)
        cluster.kill()
        cluster.kill()
        cluster.add(2)
        job.go_on()
        job.require(expected[kind])


def test_the_cluster_shrinks_and_grows(cluster, running, kind, expected):
    job = running(cluster.address, kind)
    job.go_on()
    leaving = cluster.workers.pop()
    cluster.admin.retire_workers([cluster.address_of(leaving)])
    cluster.zygote.exit_code(leaving)
    cluster.add()
    job.require(expected[kind])


@pytest.mark.filterwarnings("ignore:worker .* has not responded:RuntimeWarning")
def test_a_worker_is_frozen(cluster, running, kind, expected):
    job = running(cluster.address, kind)
    frozen = cluster.workers.pop()
    os.kill(frozen, signal.SIGSTOP)
    job.go_on()
    job.require(expected[kind])
    cluster.zygote.kill(frozen)


def test_somebody_restarts_the_cluster(cluster, running, kind, expected):
    with dask.config.set({"distributed.scheduler.no-workers-timeout": "60s"}):
        job = running(cluster.address, kind)
        cluster.admin.restart(wait_for_workers=False)
        while cluster.workers:  # they would wait for the task that is held up
            cluster.kill()
        cluster.add(2)
        job.go_on()
        job.require(expected[kind])
