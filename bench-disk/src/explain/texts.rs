//! The explanations, one per code.

use super::Explanation;

macro_rules! table {
    ($($code:literal: $title:literal, $meaning:literal, $remedy:literal;)*) => {
        pub(super) const TABLE: &[Explanation] = &[$(
            Explanation { code: $code, title: $title, meaning: $meaning, remedy: $remedy },
        )*];
    };
}

table! {
    "above-limit": "too many syncs are slower than the limit",
        "With the stated confidence more than 1 % of the syncs take longer than the limit. Every write of a cluster waits for such a sync on a majority of members, and a leader that waits too long for its own disk sends heartbeats late and loses its term.",
        "Use a disk with a lower sync latency: a local SSD with power-loss protection, or a cloud volume with more provisioned IOPS. Check with `inspect` that no control group limits it, and with a second run that nobody else was using it. Moving only the log to a better disk (--wal-dir) is often enough.";
    "barriers-off": "the file system is mounted without barriers",
        "With nobarrier or barrier=0 the file system does not tell the disk to empty its volatile cache. A sync returns, the node acknowledges the write, and a power cut takes it back. A member that forgets what it acknowledged can make the whole cluster lose or fork its history.",
        "Mount the file system without these options (mount -o remount,barrier=1) and correct /etc/fstab. If the disk's cache is protected by a battery, the option gains nothing: such a disk answers flushes at once.";
    "cgroup-limit": "a control group limits I/O on this device",
        "A limit on operations or bytes per second makes a fast disk look slow: syncs come in groups with long pauses of about 100 ms between them. What is measured is the limit, not the disk; a node in the same group would meet the same limit.",
        "Raise or remove the limit for this group (io.max, or blkio.throttle.* in the older interface; in systemd IOWriteIOPSMax= and IOWriteBandwidthMax=), or run the probe in the group in which the node will run, so that both see the same.";
    "cgroup-namespace": "limits of outer control groups cannot be seen",
        "Inside a cgroup namespace, as in most containers, only groups below the namespace's root are visible. A limit set outside, for example by the container runtime, acts without being seen here.",
        "If the result is slower than expected, look at io.max of the container's group on the host, or run the probe on the host itself.";
    "cloud-disk": "a cloud volume, which may live on a burst allowance",
        "Many cloud volumes answer quickly while they have credits and become ten times slower once the credits are spent, after minutes or hours of load. A short run on a rested volume does not show the speed that remains.",
        "Use a volume type with provisioned IOPS, or run --profile soak, which writes for long enough to use up a burst allowance. Look up the size below which your provider's volumes depend on credits.";
    "contaminated": "others kept the device busy",
        "Somebody else was using the device before, during or right after the run, so slow syncs may be theirs. Neither PASS nor FAIL would be honest.",
        "Find out who writes (iostat -x 1, pidstat -d 1), stop it or wait, and run again. If the load is permanent, the node will have to live beside it: give the node a device of its own.";
    "copy-on-write": "a copy-on-write file system",
        "On btrfs and similar file systems every overwrite goes to a new place and updates a tree of metadata, so that syncs cost more, files fragment, and latency grows with age in a way that a fresh directory does not show.",
        "Prefer ext4 or XFS for the data directory. On btrfs switch copy-on-write off for the directory while it is empty: chattr +C DIRECTORY.";
    "does-not-qualify": "this plan says nothing to a node",
        "The run wrote less, or with lower confidence, than a node asks of its disk: the fio recipe, a look at a disk in use, a load without the store, or a recorded mix of one node. Its answer is for people to compare with, and no verdict is left for a node.",
        "Run --profile quick or standard with the default load if a node shall trust the answer.";
    "election-stall": "a sync took as long as an election timeout",
        "While one sync is that slow, a leader can neither acknowledge writes nor be sure that it still leads. Followers start an election, and clients see a pause of seconds. One such stall in a short run means many per day.",
        "Look for what stalls the device: a full write cache, online discard, snapshots or backups of the volume, a RAID rebuild. If nothing can be changed, raise the election timeout to at least ten times the longest sync.";
    "faster-than-rotation": "a rotating disk that answers too fast",
        "A disk that turns cannot put dependent writes on its platter faster than about one per turn. This one answers half of the syncs in less than half a turn of the fastest disks, so it keeps them in a cache.",
        "Find out whether the cache survives a power cut (a controller with a battery does). If not, switch it off (hdparm -W0 DEVICE), measure again, and prove it with `powercut`.";
    "flush-too-cheap": "a flush costs next to nothing",
        "The device announces a volatile cache, so a flush has to travel to the device and back, and the device has to empty its cache. Here it adds almost nothing to a plain write: some layer answers in its place.",
        "Look at the cache mode of the virtual machine (unsafe and writeback without flushes are wrong), at RAID controllers and at dm targets. `powercut write` and `verify` prove what is kept.";
    "flushes-few": "fewer flushes than syncs reached the disk",
        "The disk says that it has a volatile write cache, so that about every sync must end with a flush command. The kernel counted clearly fewer. Merged flushes can lower the number somewhat; this is more.",
        "Run the probe again while nothing else syncs. If it stays, check the layers below (virtual machine cache mode, RAID controller, dm targets) for a setting that ignores flushes, and test with `powercut` if the data matters.";
    "flushes-missing": "syncs do not reach the disk",
        "The disk announces a volatile write cache, yet practically no flush command arrived there during thousands of syncs. Acknowledged writes would be lost at a power cut.",
        "Look for barriers switched off, a library or mount that turns syncs into nothing (eatmydata, a container runtime's volatile option), or a virtual machine with cache=unsafe. A consensus log must not run here.";
    "heartbeat-stall": "a sync took longer than a heartbeat interval",
        "Rare slow syncs delay single heartbeats. One missed heartbeat does no harm, but it uses up part of the margin that the election timeout leaves.",
        "Nothing needs to be done if it is rare. Where it is frequent, raise --heartbeat-interval and --election-timeout as the report suggests, or move other writers off the device.";
    "hung-sync": "a sync did not return",
        "The device or a layer above it stopped answering: a lost network path, a full thin pool, a controller that resets. A node in this state can neither make progress nor step down cleanly.",
        "Look at the kernel log (dmesg) for resets and timeouts, at the state of multipath, and at the free space of thin pools. Do not use the device before the cause is known.";
    "limit-not-disk": "a control group explains the result",
        "The result is not a PASS, and the control group of the probe limits I/O on this device. Within such a limit nobody can tell how fast the disk is.",
        "Raise the limit for the group in which the node will run, or run the probe outside of the group to judge the disk itself.";
    "live": "a gentle look at a disk in use",
        "With --live only ten syncs per second are taken beside a running node, so that nobody is disturbed. So few samples show a disk that is clearly bad, and prove nothing about a good one.",
        "Read the node's own sync histogram for the whole truth (assay_disk_op_seconds, etcd_disk_wal_fsync_duration_seconds), or stop the node and run a full profile.";
    "locked": "another probe of this device is running",
        "Two probes at the same time would measure each other. This one waited for as long as the longest profile takes and gave up.",
        "Wait for the other probe or end it. Its process holds a lock file in the run directory (/run/bench-disk, or BENCH_DISK_RUN_DIR); `fuser` on that file names it.";
    "memory-speed": "syncs as fast as memory",
        "Half of the syncs took a few microseconds or less. No storage answers so fast: the data did not leave this machine's memory, or the file system ignores syncs.",
        "Look at what lies under the directory with `inspect`, for layers in memory, for sync=disabled on ZFS, and for libraries that turn syncs into nothing.";
    "mount-option": "a mount option changes what a sync costs",
        "The option is legal and keeps data safe, but it makes syncs slower or their latency less even than it could be.",
        "Compare with a run without the option. For a data directory the defaults of ext4 and XFS, with noatime, are a good choice; run fstrim from a timer instead of mounting with discard.";
    "near-limit": "the result is too close to the limit to decide",
        "The fraction of slow syncs may be above or below 1 %: the interval contains both, usually because slow syncs came in bursts, so that the samples say less than their number suggests.",
        "Run a longer profile (--profile standard, then soak). If it stays undecided, the disk is at the limit: treat it as unfit for a busy cluster, or raise the timeouts together with --threshold.";
    "network-device": "a block device over the network",
        "Every sync crosses a network and waits for the other side's disks. Latency has the network's outliers, and members whose devices share one storage system fail together.",
        "Prefer local disks, since the cluster replicates already. If it must be, keep the members' devices on separate storage systems and probe them at the same time with --start-at.";
    "network-file-system": "a network or shared file system",
        "Locks and syncs depend on another host and on its caching rules. Some acknowledge before data is safe, most stall for seconds when a server fails over, and a lock may be granted twice.",
        "Mount a local volume (ext4 or XFS) for the data directory. The cluster keeps copies on other members; it does not need shared storage.";
    "no-space": "too little free space for the probe",
        "The probe reserves two log segments and a companion file before it begins, and must not be the reason that a disk fills up. It had not begun to write when it stopped.",
        "Free the stated space or choose another volume. A node needs more than the probe: twice its data plus the log and the reserve.";
    "pass-after-fail": "a PASS that follows a FAIL",
        "The same device failed less than a day ago. Unless something was changed in between, the truth lies between both runs, and picking the better one is how bad disks get into production.",
        "If you changed something (moved a neighbour away, raised provisioned IOPS), ignore this. Otherwise run --profile standard twice more at a busy hour and believe the worst.";
    "processor-busy": "the machine had no free processor",
        "Some syncs were slow because the measuring thread had to wait for a processor after the disk had answered. That says nothing about the disk, so there is no verdict against it.",
        "Run again when the machine is less busy. A node on such a machine would suffer too: reserve processor time for it.";
    "read-only-file-system": "the file system is read-only",
        "Nothing can be written here. A file system that became read-only by itself has met an I/O error; the kernel log names it.",
        "Mount it read-write, or choose the right volume. After an error run fsck and replace the disk if the error is its own.";
    "rotating-disk": "a rotating disk",
        "One turn at 7200 rpm takes 8.3 ms, and a sync that really reaches the platter needs about one. Such a disk is at the 10 ms limit even when idle, or it answers from a volatile cache.",
        "Use an SSD for the log at least (--wal-dir). The gate's strict mode refuses rotating disks.";
    "stacked-file-system": "a container's layer or another stacked file system",
        "What is written to an overlay lives in the container's own layer: it is deleted with the container, and its syncs have another cost than those of the volume that you meant to use.",
        "Mount a volume at this path (a hostPath, a local persistent volume, docker run -v) and run again.";
    "sync-property": "a setting of ZFS that cannot be seen",
        "A dataset with sync=disabled answers syncs at once and loses the last seconds of acknowledged writes at a power cut. The kernel interface does not show the property.",
        "Check it: zfs get sync DATASET must say standard or always. A separate log device lowers the latency of syncs.";
    "throttling-suspected": "the disk became much slower during the run",
        "The last third of the run had at least twice the latency of the first. Burst allowances, thermal throttling and full write caches look like this. The judgement uses the slow part, because that is what remains.",
        "Run --profile soak to see where it settles. On a cloud volume look up its burst rules; on an SSD check temperature and free space.";
    "unknown-file-system": "a file system that is not in the table",
        "Nothing is known about how this type treats syncs, so nothing is promised and nothing is forbidden.",
        "Prefer ext4 or XFS. If you know the type to be sound, a `powercut` test proves it.";
    "user-space-backing": "a loop device on a file in user space",
        "Below this block device lies a file of a FUSE file system. Flushes end at a process, which may or may not pass them on, and its scheduling becomes part of every sync.",
        "Use a block device of the host. For development this is acceptable.";
    "user-space-file-system": "a file system in user space (FUSE)",
        "Whether a sync reaches a disk is up to a process. There is no block device whose flushes could be counted, so durability cannot be verified at all.",
        "Mount a local volume (ext4 or XFS) for the data directory. --disk-gate=warn starts a node here for development.";
    "volatile-backing": "a loop device on a file in memory",
        "The block device looks like a disk, but its file lies in tmpfs or similar: everything is gone after a restart, and latencies say nothing about any disk.",
        "Put the image on a real disk, or use a real device. For tests --disk-gate=warn starts a node here.";
    "volatile-device": "a disk in memory",
        "zram and ram disks lose their content at a restart. A member that restarts empty but keeps its name can break the promises that it made to the others.",
        "Use a persistent device. For tests --disk-gate=warn starts a node here.";
    "volatile-file-system": "a file system in memory",
        "tmpfs and its relatives lose everything at a restart. A member that restarts empty but keeps its name can break the promises that it made to the others.",
        "Use a persistent volume. For tests --disk-gate=warn starts a node here.";
    "weak-identity": "the device cannot be recognised for certain",
        "The device has neither a serial number nor a worldwide name, so that another one of the same size could pass for it. A stored verdict is trusted for 7 days instead of 30 before a node has used it.",
        "Nothing needs to be done. On virtual machines a serial number can be given to the disk (in libvirt: <serial>).";
}
