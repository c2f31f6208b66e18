//! A manifest for tests, with the fields that a test cares about set by it.

use serde_json::{Value, json};

use super::Manifest;

/// The server of the GTIDs in samples.
pub(crate) const UUID: &str = "eb72e049-ecfc-11f1-a991-02fc00000001";

/// A manifest of a plain segment as JSON: number `number`, whose one GTID is `number` too.
pub(crate) fn value(number: u64) -> Value {
    let digest = "ab".repeat(32);
    let previous = if number <= 1 { String::new() } else { format!("{UUID}:1-{}", number - 1) };
    let before = number.checked_sub(1).filter(|before| *before > 0);
    json!({
        "format": 1, "source": "db1", "incarnation": "0001-0a1b2c3d",
        "writer_id": "00112233445566778899aabbccddeeff",
        "segment": format!("binlog.{number:06}"), "number": number,
        "listed_after": before.map(|before| format!("binlog.{before:06}")),
        "size": 100, "digest": digest, "digest_body": null, "head": digest, "key_id": null,
        "payload": {
            "key": format!("payloads/db1/0001-0a1b2c3d/{number:010}-{}.binlog", "ab".repeat(16)),
            "size": 100, "digest": digest, "etag": "e", "version_id": null,
            "encoding": "identity", "encoder": null, "part_size": null,
            "proof": "verified", "create": "atomic",
        },
        "flavor": "mysql", "server_version": "9.7.4", "server_uuid": UUID, "checksum": "crc32",
        "previous": previous, "added": format!("{UUID}:{number}"),
        "previous_hash": null, "after_hash": null, "readable": true, "transactions": 1,
        "anonymous_transactions": 0, "events": 5, "incidents": 0, "first_event_at": null,
        "last_event_at": null, "last_commit_at": null, "created_at_startup": false,
        "in_use": false, "ending": "rotate", "next_segment": format!("binlog.{:06}", number + 1),
        "sealed": "closed", "archived_at": "2026-01-01T00:00:00Z", "archiver_version": "0.1.0",
    })
}

/// The same with some fields replaced.
pub(crate) fn with(number: u64, fields: &Value) -> Manifest {
    let mut value = value(number);
    if let (Some(all), Some(fields)) = (value.as_object_mut(), fields.as_object()) {
        all.extend(fields.clone());
    }
    serde_json::from_value(value).unwrap()
}
