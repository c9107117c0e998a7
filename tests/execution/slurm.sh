#!/usr/bin/env bash
# A Slurm of two nodes on this machine, without systemd, cgroups or accounts; everything it writes lies in DIR.
#   slurm.sh start DIR    prints the path of slurm.conf once both nodes are idle
#   slurm.sh stop DIR     cancels all jobs and ends the daemons
set -euo pipefail
action=${1:?start or stop} dir=$(realpath -m "${2:?folder}")   # munge hangs on a relative socket
export SLURM_CONF="$dir/slurm.conf"
host=$(hostname -s)

configure() {
    local ports
    mapfile -t ports < <(python3 -c '
import socket
sockets = [socket.socket() for _ in range(3)]
for one in sockets: one.bind(("127.0.0.1", 0))
for one in sockets: print(one.getsockname()[1])')
    mkdir -p "$dir"/{state,spool/n1,spool/n2}
    (umask 077; head -c 128 /dev/urandom >"$dir/munge.key")
    # cred_expire is also how long a job of a lost node waits before it starts again.
    cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$dir/munge.socket,cred_expire=5
SlurmctldPort=${ports[0]}
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmdLogFile=$dir/slurmd-%n.log
SlurmdSpoolDir=$dir/spool/%n
StateSaveLocation=$dir/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/finished.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=1 RealMemory=8000
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=1 RealMemory=8000
PartitionName=main Nodes=ALL Default=YES MaxTime=1-0 State=UP
CONF
}

start() {
    configure
    munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
        --log-file="$dir/munged.log" --seed-file="$dir/munge.seed"
    slurmctld -i
    slurmd -N n1
    slurmd -N n2
    for _ in $(seq 2000); do
        [ "$(timeout 5 sinfo --noheader --Node --format=%t 2>/dev/null | xargs)" = "idle idle" ] && break
        sleep 0.1
    done
    [ "$(timeout 5 sinfo --noheader --Node --format=%t | xargs)" = "idle idle" ] || { tail -n 20 "$dir"/*.log >&2; exit 1; }
    echo "$SLURM_CONF"
}

stop() {
    timeout 10 scancel --full --user=root || true
    local file pid name
    for file in slurmd-n1 slurmd-n2 slurmctld munged; do
        pid=$(cat "$dir/$file.pid" 2>/dev/null) || continue
        name=${file%%-*}
        # The number may be another's by now.
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$name" ] || continue
        kill "$pid"
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    done
}

"$action"
