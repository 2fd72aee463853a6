//! Metrics under the names of etcd and of the libraries that it exposes. Types and names are fixed
//! by the boards and alerts that read them, also where they break conventions (gauges that end in
//! `_total`).

use super::Kind::{Counter, Doubling, Gauge, Histogram};
use super::{APPLY_EDGES, CALL_EDGES, DISK_EDGES, Family, Unit, WALK_EDGES, families};

families! {
    HAS_LEADER Gauge, Flag, "etcd_server_has_leader" [] "Whether this member knows a leader.";
    IS_LEADER Gauge, Flag, "etcd_server_is_leader" [] "Whether this member leads.";
    IS_LEARNER Gauge, Flag, "etcd_server_is_learner" [] "Whether this member has no vote.";
    LEADER_CHANGES_SEEN Counter, Count, "etcd_server_leader_changes_seen_total" []
        "Times that a leader other than the last known one appeared.";
    SERVER_ID Gauge, Info, "etcd_server_id" ["server_id"] "Id of this member in hexadecimal digits.";
    SERVER_VERSION Gauge, Info, "etcd_server_version" ["server_version"]
        "Version of the interface that this member serves.";
    GO_VERSION Gauge, Info, "etcd_server_go_version" ["server_go_version"]
        "Go version, of which there is none here; existing boards join on the name.";
    CLUSTER_VERSION Gauge, Info, "etcd_cluster_version" ["cluster_version"]
        "Version that the members agreed on.";
    LATE_HEARTBEATS Counter, Count, "etcd_server_heartbeat_send_failures_total" []
        "Ticks that came more than a heartbeat interval late.";
    SNAPSHOT_APPLY Gauge, Flag, "etcd_server_snapshot_apply_in_progress_total" []
        "Whether a snapshot from another member is being installed.";
    COMMITTED Gauge, Index, "etcd_server_proposals_committed_total" []
        "Commit index of the log.";
    APPLIED Gauge, Index, "etcd_server_proposals_applied_total" []
        "Index of the last entry applied.";
    PENDING Gauge, Count, "etcd_server_proposals_pending" []
        "Proposals that wait for their result on this member.";
    FAILED Counter, Count, "etcd_server_proposals_failed_total" []
        "Proposals that were refused or whose deadline passed.";
    SLOW_READ_INDEXES Counter, Count, "etcd_server_slow_read_indexes_total" []
        "Linearizable reads that took longer than a retry interval.";
    READ_INDEXES_FAILED Counter, Count, "etcd_server_read_indexes_failed_total" []
        "Linearizable reads that found no leader or lost it.";
    SLOW_APPLY Counter, Count, "etcd_server_slow_apply_total" []
        "Applied entries that took longer than the warning threshold.";
    APPLY_DURATION Histogram(APPLY_EDGES), Seconds, "etcd_server_apply_duration_seconds"
        ["op", "success", "version"] "Time of applying one command.";
    REQUEST_DURATION Histogram(DISK_EDGES), Seconds, "etcd_server_request_duration_seconds"
        ["success", "type"] "Time of answering one request on the member that got it.";
    RANGE_DURATION Histogram(APPLY_EDGES), Seconds, "etcd_server_range_duration_seconds"
        ["success"] "Time of reading one range outside of transactions.";
    CLIENT_REQUESTS Counter, Count, "etcd_server_client_requests_total"
        ["client_api_version", "type"] "Calls by the version that the client names.";
    QUOTA_BYTES Gauge, Bytes, "etcd_server_quota_backend_bytes" []
        "Space quota; negative when there is none.";
    HEALTH_SUCCESS Counter, Count, "etcd_server_health_success" [] "Answers of /health: healthy.";
    HEALTH_FAILURES Counter, Count, "etcd_server_health_failures" []
        "Answers of /health: not healthy.";
    HEALTHCHECK Gauge, Flag, "etcd_server_healthcheck" ["name", "type"]
        "Last result of each check of /livez and /readyz.";
    HEALTHCHECKS Counter, Count, "etcd_server_healthchecks_total" ["name", "status", "type"]
        "Checks of /livez and /readyz by result.";
    LEASE_EXPIRED Counter, Count, "etcd_debugging_server_lease_expired_total" []
        "Leases that this member revoked because they expired.";
    ALARMS Gauge, Flag, "etcd_debugging_server_alarms" ["alarm_type", "server_id"]
        "Active alarms of this member.";

    DB_SIZE Gauge, Bytes, "etcd_mvcc_db_total_size_in_bytes" []
        "Bytes that count against the quota: live rows and those that a compaction can drop.";
    DB_IN_USE Gauge, Bytes, "etcd_mvcc_db_total_size_in_use_in_bytes" []
        "Bytes of live rows.";
    OPEN_READ_TRANSACTIONS Gauge, Count, "etcd_mvcc_db_open_read_transactions" []
        "Views of the store that somebody holds.";
    RANGES Counter, Count, "etcd_mvcc_range_total" []
        "Ranges read, in transactions and outside of them.";
    PUTS Counter, Count, "etcd_mvcc_put_total" [] "Puts applied.";
    DELETES Counter, Count, "etcd_mvcc_delete_total" [] "Delete operations applied.";
    TXNS Counter, Count, "etcd_mvcc_txn_total" []
        "Transactions applied that have more than one operation.";
    COMPACTION_INDEX Doubling, Milliseconds,
        "etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds" []
        "Time of applying that each compaction took for its walk of the keys, all steps together.";
    COMPACTION_PAUSE Doubling, Milliseconds,
        "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds" []
        "Time of applying that each step of a compaction took.";
    COMPACTION_TOTAL Doubling, Milliseconds,
        "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds" []
        "Time of each compaction from its start until all rows are out.";
    COMPACTION_LAST Gauge, UnixTime, "etcd_debugging_mvcc_db_compaction_last" []
        "When the last compaction ended, 0 if none did since the start.";
    COMPACTION_KEYS Counter, Count, "etcd_debugging_mvcc_db_compaction_keys_total" []
        "Rows dropped by compactions.";
    PENDING_EVENTS Gauge, Count, "etcd_debugging_mvcc_pending_events_total" []
        "Events that wait for their watch stream to send them.";
    HASH_DURATION Histogram(WALK_EDGES), Seconds, "etcd_mvcc_hash_duration_seconds" []
        "Time of hashing the whole store.";
    HASH_REV_DURATION Histogram(WALK_EDGES), Seconds, "etcd_mvcc_hash_rev_duration_seconds" []
        "Time of hashing the keys up to a revision.";
    KEYS Gauge, Count, "etcd_debugging_mvcc_keys_total" [] "Keys that exist.";
    WATCH_STREAMS Gauge, Count, "etcd_debugging_mvcc_watch_stream_total" [] "Open watch streams.";
    WATCHERS Gauge, Count, "etcd_debugging_mvcc_watcher_total" [] "Open watches.";
    SLOW_WATCHERS Gauge, Count, "etcd_debugging_mvcc_slow_watcher_total" []
        "Watches that read history or wait for their client.";
    EVENTS Counter, Count, "etcd_debugging_mvcc_events_total" []
        "Events handed to watch streams.";
    CURRENT_REVISION Gauge, Revision, "etcd_debugging_mvcc_current_revision" []
        "Current revision.";
    COMPACT_REVISION Gauge, Revision, "etcd_debugging_mvcc_compact_revision" []
        "Revision of the last compaction, -1 if there was none.";
    PUT_BYTES Gauge, Bytes, "etcd_debugging_mvcc_total_put_size_in_bytes" []
        "Bytes of all rows put since the start.";

    WAL_FSYNC Histogram(DISK_EDGES), Seconds, "etcd_disk_wal_fsync_duration_seconds" []
        "Time of each sync of the write-ahead log and its directory, failed ones too.";
    WAL_WRITE Histogram(DISK_EDGES), Seconds, "etcd_disk_wal_write_duration_seconds" []
        "Time of each write to the write-ahead log.";
    WAL_WRITE_BYTES Gauge, Bytes, "etcd_disk_wal_write_bytes_total" []
        "Bytes written to the write-ahead log.";
    BACKEND_COMMIT Histogram(DISK_EDGES), Seconds, "etcd_disk_backend_commit_duration_seconds" []
        "Time of each durable commit of the store.";
    DEFRAG_INFLIGHT Gauge, Flag, "etcd_disk_defrag_inflight" [] "Whether the store is defragmented now.";

    CLIENT_SENT Counter, Bytes, "etcd_network_client_grpc_sent_bytes_total" []
        "Bytes of gRPC messages sent to clients.";
    CLIENT_RECEIVED Counter, Bytes, "etcd_network_client_grpc_received_bytes_total" []
        "Bytes of gRPC messages received from clients.";
    KNOWN_PEERS Gauge, Flag, "etcd_network_known_peers" ["Local", "Remote"]
        "Members of the cluster, this one included.";
    ACTIVE_PEERS Gauge, Flag, "etcd_network_active_peers" ["Local", "Remote"]
        "Whether messages can be sent to this member.";
    DISCONNECTED_PEERS Counter, Count, "etcd_network_disconnected_peers_total" ["Local", "Remote"]
        "Connections to this member that were lost.";
    PEER_SENT Counter, Bytes, "etcd_network_peer_sent_bytes_total" ["To"]
        "Bytes of messages sent to this member.";
    PEER_RECEIVED Counter, Bytes, "etcd_network_peer_received_bytes_total" ["From"]
        "Bytes of messages received from this member.";
    PEER_SENT_FAILURES Counter, Count, "etcd_network_peer_sent_failures_total" ["To"]
        "Messages to this member that were dropped or lost with a connection.";
    PEER_RECEIVED_FAILURES Counter, Count, "etcd_network_peer_received_failures_total" ["From"]
        "Messages from this member that were refused or dropped.";
    PEER_ROUND_TRIP Histogram(APPLY_EDGES), Seconds, "etcd_network_peer_round_trip_time_seconds" ["To"]
        "Time from a ping to its answer, once a second on the connection that the messages take.";
    SNAPSHOT_SENT Counter, Count, "etcd_network_snapshot_send_success" ["To"]
        "Snapshots sent to this member.";
    SNAPSHOT_SEND_FAILURES Counter, Count, "etcd_network_snapshot_send_failures" ["To"]
        "Snapshots that did not reach this member.";
    SNAPSHOT_SENDING Gauge, Count, "etcd_network_snapshot_send_inflights_total" ["To"]
        "Snapshots on their way to this member.";
    SNAPSHOT_SEND Histogram(WALK_EDGES), Seconds, "etcd_network_snapshot_send_total_duration_seconds"
        ["To"] "Time of snapshots that reached this member.";
    SNAPSHOT_RECEIVED Counter, Count, "etcd_network_snapshot_receive_success" ["From"]
        "Snapshots received from this member.";
    SNAPSHOT_RECEIVE_FAILURES Counter, Count, "etcd_network_snapshot_receive_failures" ["From"]
        "Snapshots from this member that broke off or were refused.";
    SNAPSHOT_RECEIVING Gauge, Count, "etcd_network_snapshot_receive_inflights_total" ["From"]
        "Snapshots on their way from this member.";
    SNAPSHOT_RECEIVE Histogram(WALK_EDGES), Seconds,
        "etcd_network_snapshot_receive_total_duration_seconds" ["From"]
        "Time of snapshots received from this member.";

    LEASES_GRANTED Counter, Count, "etcd_debugging_lease_granted_total" [] "Leases granted.";
    LEASES_REVOKED Counter, Count, "etcd_debugging_lease_revoked_total" [] "Leases revoked.";
    LEASES_RENEWED Counter, Count, "etcd_debugging_lease_renewed_total" [] "Leases kept alive.";
    LEASE_TTL Doubling, Seconds, "etcd_debugging_lease_ttl_total" []
        "Times to live of the leases granted.";
    AUTH_REVISION Gauge, Revision, "etcd_debugging_auth_revision" []
        "Revision of users, roles and permissions.";

    RPC_STARTED Counter, Count, "grpc_server_started_total"
        ["grpc_method", "grpc_service", "grpc_type"] "Calls begun.";
    RPC_HANDLED Counter, Count, "grpc_server_handled_total"
        ["grpc_code", "grpc_method", "grpc_service", "grpc_type"] "Calls ended, by code.";
    RPC_RECEIVED Counter, Count, "grpc_server_msg_received_total"
        ["grpc_method", "grpc_service", "grpc_type"] "Messages received.";
    RPC_SENT Counter, Count, "grpc_server_msg_sent_total"
        ["grpc_method", "grpc_service", "grpc_type"] "Messages sent.";
    RPC_HANDLING Histogram(CALL_EDGES), Seconds, "grpc_server_handling_seconds"
        ["grpc_method", "grpc_service", "grpc_type"] "Time of unary calls.";

    FD_USED Gauge, Count, "os_fd_used" [] "Open file descriptors.";
    FD_LIMIT Gauge, Count, "os_fd_limit" [] "Limit of open file descriptors.";
    CPU_SECONDS Counter, Seconds, "process_cpu_seconds_total" []
        "CPU time of the process in user and kernel mode.";
    OPEN_FDS Gauge, Count, "process_open_fds" [] "Open file descriptors.";
    MAX_FDS Gauge, Count, "process_max_fds" [] "Limit of open file descriptors.";
    VIRTUAL_BYTES Gauge, Bytes, "process_virtual_memory_bytes" [] "Virtual memory.";
    VIRTUAL_MAX_BYTES Gauge, Bytes, "process_virtual_memory_max_bytes" []
        "Limit of virtual memory.";
    RESIDENT_BYTES Gauge, Bytes, "process_resident_memory_bytes" [] "Resident memory.";
    START_TIME Gauge, UnixTime, "process_start_time_seconds" [] "When the process started.";
    NETWORK_RECEIVED Counter, Bytes, "process_network_receive_bytes_total" []
        "Bytes received by the network namespace of the process.";
    NETWORK_SENT Counter, Bytes, "process_network_transmit_bytes_total" []
        "Bytes sent by the network namespace of the process.";
    SCRAPES Counter, Count, "promhttp_metric_handler_requests_total" ["code"]
        "Answers of /metrics by status.";
    SCRAPES_RUNNING Gauge, Count, "promhttp_metric_handler_requests_in_flight" []
        "Requests for /metrics that are being answered.";
}
