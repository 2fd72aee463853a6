//! Metrics of our own: what the node knows and etcd's names have no place for.

use super::Kind::{Counter, Gauge, Histogram};
use super::{DISK_EDGES, Family, Unit, families};

families! {
    BUILD Gauge, Info, "assay_build_info" ["version"] "Version of this program.";
    READY Gauge, Flag, "assay_ready" [] "Whether this member serves clients.";
    START_PHASE Gauge, Seconds, "assay_start_phase_seconds" ["phase"]
        "Length of each phase of the start, so far for the present one.";
    LOG_DROPPED Counter, Count, "assay_log_lines_dropped_total" []
        "Log lines dropped because a sink was too slow.";

    DISK_OPERATION Histogram(DISK_EDGES), Seconds, "assay_disk_operation_duration_seconds"
        ["file", "op"] "Time of each file operation, failed ones too.";
    DISK_ERRORS Counter, Count, "assay_disk_operation_errors_total" ["file", "op"]
        "File operations that failed.";
    DISK_BYTES Counter, Bytes, "assay_disk_bytes_total" ["file", "op"]
        "Bytes read and written.";
    DISK_IN_FLIGHT Gauge, Seconds, "assay_disk_in_flight_seconds" ["file", "op"]
        "Age of the oldest file operation that has not ended, 0 if none runs.";

    GATE_STATE Gauge, Flag, "assay_disk_gate_state" ["state"]
        "What the disk gate decided, or the log's syncs since: 1 for one state, 0 for all others.";
    GATE_P99 Gauge, Seconds, "assay_disk_gate_p99_seconds" []
        "Sync p99 that the disk gate or the running log measured; absent if neither did.";
    GATE_LIMIT Gauge, Seconds, "assay_disk_gate_limit_seconds" []
        "Sync p99 above which the disk gate refuses a disk.";

    DISK_DRIFT Gauge, Flag, "assay_disk_drift" ["against"]
        "Whether the log's syncs of the last hour are too slow for the limit, or for the stored verdict of the disk.";
    DISK_LIVE_P99 Gauge, Seconds, "assay_disk_live_p99_seconds" []
        "Sync p99 of the log in the last hour; absent without a sync.";

    FREE_BYTES Gauge, Bytes, "assay_fs_free_bytes" ["volume"]
        "Free space of the file system that holds the data.";
    FREE_INODES Gauge, Count, "assay_fs_free_inodes" ["volume"]
        "Free inodes of the file system that holds the data.";
    SPACE_REFUSED Gauge, Flag, "assay_fs_reserve_reached" []
        "Whether client writes are refused because free space is below the reserve.";
    SPACE_REFUSALS Counter, Count, "assay_fs_refused_requests_total" []
        "Requests refused because free space is below the reserve.";

    STAGE Histogram(DISK_EDGES), Seconds, "assay_proposal_stage_duration_seconds" ["stage"]
        "Time of each stage of a proposal on its way through the node.";
    OUTCOMES Counter, Count, "assay_proposals_total" ["outcome"] "Proposals by what became of them.";
    OLDEST_PENDING Gauge, Seconds, "assay_proposal_oldest_pending_seconds" []
        "Age of the oldest proposal that waits for its result, 0 if none does.";

    LEADER_CHANGES Counter, Count, "assay_leader_changes_total" ["cause"]
        "Leaderships that this member won, by why the leader before did not go on.";
    DISK_STEP_DOWNS Counter, Count, "assay_disk_step_downs_total" ["outcome"]
        "Times that this leader found its disk hung or slow, by what it did: handed_over, failed (the next one did not take over), kept.";
    DISK_RECOVERING Gauge, Flag, "assay_disk_recovering" []
        "Whether this member's disk hung lately, so that it lets others stand for election first.";
    LEADERLESS Gauge, Seconds, "assay_leaderless_seconds" []
        "Time without a leader, from the last word of the one before; 0 if there is one.";
    LEADERLESS_ENDED Histogram(DISK_EDGES), Seconds, "assay_leaderless_duration_seconds" []
        "Time from the last word of a leader until the next one, or the same again, was known here.";
    TENURE Gauge, Seconds, "assay_leader_tenure_seconds" []
        "How long this member has led, 0 if it does not.";
    TENURE_ENDED Histogram(DISK_EDGES), Seconds, "assay_leader_tenure_duration_seconds" []
        "Length of each leadership of this member that has ended.";
    RAFT_INDEX Gauge, Index, "assay_raft_index" ["kind"] "Positions in the log.";
    RAFT_TERM Gauge, Count, "assay_raft_term" [] "Raft term.";
    FEATURE_LEVEL Gauge, Count, "assay_feature_level" ["kind"]
        "Level of replicated commands that the cluster uses, this program knows, and every member knows (0 while one is not connected).";
    VOTERS Gauge, Count, "assay_cluster_voters" [] "Members with a vote.";

    DIVERGENCE_COMPARED Counter, Count, "assay_divergence_comparisons_total" ["verdict"]
        "Comparisons of another member's hashes with this leader's; unknown: there was nothing to compare.";
    DIVERGENCE_CONFIRMED Counter, Count, "assay_divergence_confirmations_total" ["verdict"]
        "Comparisons of all rows of the members by this leader; unknown: fewer than two could be compared.";
    DIVERGENCE_SUSPECTED Gauge, Flag, "assay_divergence_suspected" []
        "Whether this leader sees members whose hashes differ and that are not fenced.";
    DIVERGENCE_ACTIONS Counter, Count, "assay_divergence_actions_total" []
        "Times that this leader fenced a member, raised an alarm or handed over because data differs.";
    DIVERGENCE_FENCED Gauge, Flag, "assay_divergence_fenced" []
        "Whether this member is fenced because its data differs from the majority's.";
    DIVERGENCE_FENCED_MEMBERS Gauge, Count, "assay_divergence_fenced_members" []
        "Members that are fenced, as this one knows.";
    DIVERGENCE_STORE Gauge, Flag, "assay_divergence_store_damaged" []
        "Whether the store gave back something else at the start than what was written to it.";
    DIVERGENCE_ALL_EQUAL Gauge, UnixTime, "assay_divergence_all_equal_timestamp_seconds" []
        "When this leader last found all members equal; 0 if it never did.";
    LEADER_COMMITTED Counter, Count, "assay_raft_leader_committed_entries_total" ["own_sync"]
        "Entries committed while this member led, by whether its own sync of them was done.";
    PEER_APPEND Histogram(DISK_EDGES), Seconds, "assay_peer_append_duration_seconds" ["To"]
        "Time from sending entries to this member until it said that its disk holds them.";

    WAL_GROUPS Counter, Count, "assay_wal_groups_total" []
        "Groups of entries written to the log with one sync.";
    WAL_GROUP_ENTRIES Counter, Count, "assay_wal_group_entries_total" []
        "Entries in all groups; divided by the groups it is the mean group size.";
    STORE_FILE Gauge, Bytes, "assay_store_file_bytes" []
        "Length of the store's file; it grows in jumps and is not what the quota counts.";
    STORE_PENDING Gauge, Bytes, "assay_store_pending_bytes" []
        "Rows that are committed in the log and not yet durable in the store.";
    STORE_PENDING_LIMIT Gauge, Bytes, "assay_store_pending_limit_bytes" []
        "Rows waiting for the store above which proposals are refused.";

    LEASES Gauge, Count, "assay_leases" [] "Leases that exist.";
    WATCH_BLOCKED Gauge, Count, "assay_watch_blocked" []
        "Watches that wait for their client to take what was sent.";
    WATCH_FELL_BEHIND Counter, Count, "assay_watch_fell_behind_total" []
        "Watches that could not keep up and went back to reading history.";
    WATCH_COMPACTED Counter, Count, "assay_watch_compacted_total" []
        "Watches cancelled because their revision was compacted.";

    CONNECTIONS Gauge, Count, "assay_connections" ["port"] "Open connections.";
    CONNECTION_LIMIT Gauge, Count, "assay_connection_limit" ["port"]
        "Connections of a kind of port above which new ones are refused.";
    ACCEPTED Counter, Count, "assay_connections_accepted_total" [] "Connections accepted.";
    REFUSED Counter, Count, "assay_connections_refused_total" []
        "Connections closed at once because the limit was reached.";
    CLOSED Counter, Count, "assay_connections_closed_total" ["port", "reason"]
        "Connections ended, by reason.";
    TLS_EXPIRES Gauge, UnixTime, "assay_tls_cert_expiry_timestamp_seconds" ["cert", "listener"]
        "End of the validity of each certificate in use; of a chain, the end of its weakest link.";
    TLS_ISSUED Gauge, UnixTime, "assay_tls_cert_issued_timestamp_seconds" ["cert", "listener"]
        "Begin of the validity of each certificate in use.";
    TLS_REJECTED Gauge, Flag, "assay_tls_files_rejected" ["listener"]
        "Whether the certificate files on disk do not fit, so that older ones are in use.";
    TLS_FAILURES Counter, Count, "assay_tls_handshake_failures_total" ["port", "reason"]
        "TLS handshakes that failed, by reason.";
    ACCEPT_FAILED Counter, Count, "assay_connection_accept_failures_total" ["port"]
        "Failures to accept a connection.";
}
