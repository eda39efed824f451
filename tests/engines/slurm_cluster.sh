#!/bin/sh
# A Slurm of two nodes, both this machine: munged, slurmctld, two slurmd, with a partition that pre-empts and one that is
# pre-empted. For tests of the executor on the real thing; as root, on Debian or Ubuntu, in a machine to throw away.
#
#   sh tests/engines/slurm_cluster.sh install   # slurm-wlm and munge from the distribution's packages
#   sh tests/engines/slurm_cluster.sh start     # then: sinfo, and ablations run ... --executor slurm
#   sh tests/engines/slurm_cluster.sh stop
#
# A job of partition `low` is told to write its checkpoint and queued again when one of `high` needs its cores:
#   ablations run masking_ratio --scale smoke --executor slurm --executor-option partition=low &
#   sbatch --partition=high --nodes=2 --exclusive --wrap 'sleep 60'
#
# While it runs, `make test-engines` does that too (test_slurm.py).
set -eu

STATE=/var/lib/ablations-slurm
CONF=/etc/slurm/slurm.conf
NODE=$(hostname -s)

install() {
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends slurm-wlm munge
}

configure() {
    mkdir -p /etc/slurm "$STATE/ctld" "$STATE/first" "$STATE/second" /run/munge
    [ ! -f "$CONF" ] || grep -q '^# made by slurm_cluster.sh' "$CONF" || { echo "$CONF is somebody's; not touched" >&2; exit 1; }
    cat > "$CONF" <<SLURM
# made by slurm_cluster.sh
ClusterName=ablations
SlurmctldHost=$NODE
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=$STATE/ctld
SlurmdSpoolDir=$STATE/%n
SlurmctldPidFile=$STATE/slurmctld.pid
SlurmdPidFile=$STATE/%n.pid
SlurmctldLogFile=$STATE/slurmctld.log
SlurmdLogFile=$STATE/%n.log
# no cgroups and no accounts: neither is there in a container
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
JobRequeue=1
KillWait=60
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
NodeName=first NodeHostname=$NODE NodeAddr=127.0.0.1 Port=17001 CPUs=$(nproc) State=UNKNOWN
NodeName=second NodeHostname=$NODE NodeAddr=127.0.0.1 Port=17002 CPUs=$(nproc) State=UNKNOWN
PartitionName=low Nodes=first,second Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=high Nodes=first,second Default=NO MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
SLURM
    case "$(slurmd -V | cut -d' ' -f2)" in
    2[0-2].* | 23.02*) echo "# found by itself" > /etc/slurm/cgroup.conf ;;
    *) echo 'CgroupPlugin=disabled' > /etc/slurm/cgroup.conf ;;
    esac
}

start() {
    configure
    [ -f /etc/munge/munge.key ] || mungekey --create
    chown -R munge:munge /etc/munge /run/munge
    chmod 755 /run/munge
    pidof munged > /dev/null || runuser -u munge -- munged
    slurmctld
    slurmd -N first
    slurmd -N second
    for _ in $(seq 30); do
        if [ "$(sinfo --noheader --format=%T --partition=low 2> /dev/null)" = idle ]; then
            sinfo
            return
        fi
        sleep 1
    done
    echo "the nodes are not ready; see the logs in $STATE" >&2
    exit 1
}

stop() {
    for daemon in first second slurmctld; do
        [ ! -f "$STATE/$daemon.pid" ] || kill "$(cat "$STATE/$daemon.pid")" || true
    done
    [ ! -f /run/munge/munged.pid ] || kill "$(cat /run/munge/munged.pid)" || true
}

case "${1:-}" in
install | start | stop) "$1" ;;
*) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
