//! Compiles `proto/` with a compiler written in Rust: the machine needs no protoc.

use prost_types::field_descriptor_proto::Type;
use std::error::Error;

const FILES: [&str; 9] = [
    "kv.proto",
    "auth.proto",
    "membership.proto",
    "rpc.proto",
    "raft_internal.proto",
    "lease.proto",
    "election.proto",
    "lock.proto",
    "peer.proto",
];

/// Message fields that are generated as raw bytes. A message and a bytes field have the same wire
/// form, and the store keeps rows exactly as `mvccpb.KeyValue` bytes: an answer made of them is
/// identical on the wire, and no row is decoded and encoded again on the way to a client.
const RAW: [(&str, &str); 6] = [
    ("RangeResponse", "kvs"),
    ("PutResponse", "prev_kv"),
    ("DeleteRangeResponse", "prev_kvs"),
    ("WatchResponse", "events"),
    ("Event", "kv"),
    ("Event", "prev_kv"),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut set = protox::compile(FILES, ["proto"])?;
    let mut left = RAW.len();
    for message in set.file.iter_mut().flat_map(|file| &mut file.message_type) {
        let name = message.name().to_string();
        for field in &mut message.field {
            if RAW.contains(&(name.as_str(), field.name())) {
                field.set_type(Type::Bytes);
                field.type_name = None;
                left -= 1;
            }
        }
    }
    if left != 0 {
        return Err("a field of RAW is not in proto/".into());
    }
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::proto::codec::Codec")
        .bytes(".")
        .compile_fds(set)?;
    Ok(())
}
