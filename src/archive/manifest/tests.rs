//! Manifests as JSON: what is written, what is read, what is refused.

use serde_json::{Value, json};

use super::super::sample;
use super::*;

fn refused(fields: Value) -> String {
    let mut value = sample::value(3);
    value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value::<Manifest>(value).unwrap_err().to_string()
}

#[test]
fn a_manifest_comes_back_as_it_was_written_with_every_field() {
    let whole = json!({
        "listed_after": "binlog.000002", "digest_body": "cd".repeat(32), "key_id": "k_1",
        "previous_hash": "ef".repeat(32), "after_hash": "01".repeat(32),
        "first_event_at": "2026-01-02T03:04:05Z", "last_event_at": "2026-01-02T03:04:06Z",
        "last_commit_at": "2026-01-02T03:04:05.000007Z", "server_uuid": null,
        "created_at_startup": true, "in_use": true, "ending": "stop", "sealed": "crash-tail",
        "next_segment": null,
    });
    let manifest = sample::with(3, &whole);
    let text = serde_json::to_string(&manifest).unwrap();
    let back: Manifest = serde_json::from_str(&text).unwrap();
    assert_eq!(back, manifest);
    let value: Value = serde_json::from_str(&text).unwrap();
    let mut expected = sample::value(3);
    expected.as_object_mut().unwrap().extend(whole.as_object().unwrap().clone());
    assert_eq!(value, expected);
}

#[test]
fn what_is_not_known_is_written_as_null() {
    let hidden = [
        "listed_after",
        "digest_body",
        "key_id",
        "flavor",
        "server_version",
        "server_uuid",
        "checksum",
        "previous",
        "added",
        "previous_hash",
        "after_hash",
        "transactions",
        "anonymous_transactions",
        "events",
        "incidents",
        "first_event_at",
        "last_event_at",
        "last_commit_at",
        "created_at_startup",
        "in_use",
        "ending",
        "next_segment",
    ];
    let nulls: serde_json::Map<String, Value> =
        hidden.iter().map(|field| ((*field).to_owned(), Value::Null)).collect();
    let manifest = sample::with(3, &Value::Object(nulls));
    let value = serde_json::to_value(&manifest).unwrap();
    for field in hidden {
        assert_eq!(value.get(field), Some(&Value::Null), "{field}");
    }
    let fields = value.as_object().unwrap().len();
    assert_eq!(fields, sample::value(3).as_object().unwrap().len());
}

#[test]
fn a_higher_format_is_refused_and_unknown_fields_are_not() {
    assert!(refused(json!({"format": 2})).contains("format 2 is newer"));
    let manifest = sample::with(3, &json!({"of_a_later_version": {"deep": [1, 2]}}));
    assert_eq!(manifest, sample::with(3, &json!({})));
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    assert!(refused(json!({"number": 4})).contains("does not have number 4"));
    assert!(refused(json!({"previous": "no set"})).contains("previous"));
    assert!(refused(json!({"added": "0-1-2"})).contains("added"));
    assert!(refused(json!({"flavor": null})).contains("flavor"));
    assert!(refused(json!({"source": "DB 1"})).contains("DB 1"));
    assert!(refused(json!({"incarnation": "1-2"})).contains("1-2"));
    assert!(refused(json!({"segment": "../binlog.000003"})).contains("binlog"));
    let elsewhere = [
        "payloads/db2/0001-0a1b2c3d/0000000003-abababababababababababababababab.binlog",
        "payloads/db1/0002-0a1b2c3d/0000000003-abababababababababababababababab.binlog",
        "payloads/db1/0001-0a1b2c3d/0000000004-abababababababababababababababab.binlog",
        "payloads/db1/0001-0a1b2c3d/../../../0000000003-abababababababababababababababab.binlog",
        "mutable/db1/writer.json",
    ];
    for key in elsewhere {
        let mut payload = sample::value(3)["payload"].clone();
        payload["key"] = key.into();
        assert!(refused(json!({ "payload": payload })).contains("payload key"), "{key}");
    }
}

#[test]
fn sets_of_mariadb_are_read_by_its_flavor() {
    let manifest = sample::with(
        3,
        &json!({"flavor": "mariadb", "previous": "0-131-51,0-132-76", "added": "0-132-77:101"}),
    );
    assert_eq!(manifest.after().unwrap().to_string(), "0-131-51,0-132-101");
    let value = serde_json::to_value(&manifest).unwrap();
    assert_eq!(value["added"], json!("0-132-77:101"));
}

#[test]
fn a_hash_is_over_the_canonical_text() {
    let one = Previous::parse(Flavor::Mysql, "EB72E049-ECFC-11F1-A991-02FC00000001:3-5:1").unwrap();
    let other = Previous::parse(
        Flavor::Mysql,
        "eb72e049-ecfc-11f1-a991-02fc00000001:1,\neb72e049-ecfc-11f1-a991-02fc00000001:3-4:5",
    )
    .unwrap();
    assert_eq!(set_hash(&one), set_hash(&other));
    let text = "eb72e049-ecfc-11f1-a991-02fc00000001:1:3-5";
    assert_eq!(set_hash(&one), Digest::from_bytes(Sha256::digest(text).into()));
}
