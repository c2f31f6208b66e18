//! What the S3 store sends, and what it makes of answers no real server gives on request.
//!
//! One thread listens on loopback, reads whole requests or parts of them, and answers by script.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use binlog_archiver::fault::{Fault, FaultKind};
use binlog_archiver::store::{
    Checked, ChecksumMode, FileBody, LockMode, ObjectLock, PutMode, Recheck, S3Options, S3Store,
    Sse, Store, Stored, digest_of, get_small, probe,
};
use bytes::Bytes;

/// What the server does with a request.
#[derive(Clone, Copy)]
enum Act {
    /// Reads it whole, then answers with these bytes; the connection is closed.
    Answer(&'static str),
    /// Reads the head, then resets the connection.
    ResetInBody,
    /// Reads it whole and closes without a word.
    Close,
    /// Reads it whole and never answers.
    Silence,
}

struct Server {
    endpoint: String,
    requests: Receiver<String>,
}

/// Serves any number of requests, each with the same act. The thread ends with the process.
fn serve(act: Act) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = sync_channel(100);
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = read_head(&mut stream, !matches!(act, Act::ResetInBody));
            // Most tests do not look.
            sender.try_send(head).ok();
            match act {
                Act::Answer(answer) => {
                    // A client that has gone does not matter.
                    stream.write_all(answer.as_bytes()).ok();
                }
                // Linux resets a connection that is closed with bytes unread.
                Act::ResetInBody | Act::Close => {}
                Act::Silence => held.push(stream),
            }
        }
    });
    Server { endpoint, requests }
}

fn read_head(stream: &mut TcpStream, whole: bool) -> String {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return head;
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |text| text.trim().parse().unwrap());
    if whole {
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok();
    }
    head
}

fn options(server: &Server) -> S3Options {
    let mut options = S3Options::new("bucket", "/pre/fix/");
    options.endpoint = Some(server.endpoint.clone());
    options
}

async fn connect(options: S3Options) -> S3Store {
    let keys = Credentials::new("key", "secret", None, None, "test");
    S3Store::connect_as(options, Some(SharedCredentialsProvider::new(keys))).await.unwrap()
}

async fn put(store: &S3Store, mode: PutMode<'_>) -> Result<Stored, Fault> {
    store.put("payloads/a", Bytes::from_static(b"bytes"), &digest_of(b"bytes"), mode).await
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\netag: \"e\"\r\nconnection: close\r\n\r\n";

fn has(head: &str, line: &str) -> bool {
    head.lines().any(|one| one == line)
}

#[tokio::test]
async fn a_put_is_a_plain_body_with_its_digest() {
    let server = serve(Act::Answer(OK));
    let mut options = options(&server);
    options.storage_class = Some("STANDARD_IA".into());
    options.object_lock = Some(ObjectLock { mode: LockMode::Compliance, days: 3 });
    options.sse = Sse::Kms { key_id: Some("key-1".into()) };
    options.expected_bucket_owner = Some("123456789012".into());
    let store = connect(options.clone()).await;
    put(&store, PutMode::Create).await.unwrap();
    let file = FileBody {
        file: Arc::new({
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"bytes").unwrap();
            file
        }),
        size: 5,
        digest: digest_of(b"bytes"),
        check: Recheck::ByStore,
    };
    store.put_file("payloads/a", file, PutMode::Create).await.unwrap();
    for _ in 0..2 {
        let head = server.requests.recv().unwrap();
        assert!(head.starts_with("put /bucket/pre/fix/payloads/a?"), "{head}");
        for line in [
            "content-length: 5",
            "x-amz-content-sha256: unsigned-payload",
            "if-none-match: *",
            "x-amz-storage-class: standard_ia",
            "x-amz-object-lock-mode: compliance",
            "x-amz-server-side-encryption: aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id: key-1",
            "x-amz-expected-bucket-owner: 123456789012",
        ] {
            assert!(has(&head, line), "{line}: {head}");
        }
        assert!(head.contains("x-amz-checksum-sha256: "), "{head}");
        for absent in ["aws-chunked", "trailer", "crc32", "transfer-encoding", "if-match"] {
            assert!(!head.contains(absent), "{absent}: {head}");
        }
    }
    let body = Bytes::from_static(b"b");
    store.put("mutable/x", body.clone(), &digest_of(b"b"), PutMode::Replace).await.unwrap();
    let head = server.requests.recv().unwrap();
    assert!(!head.contains("object-lock") && !head.contains("storage-class"), "{head}");
    store
        .put("index/x", body.clone(), &digest_of(b"b"), PutMode::Update { etag: "e" })
        .await
        .unwrap();
    let head = server.requests.recv().unwrap();
    assert!(head.contains("object-lock-mode") && !head.contains("storage-class"), "{head}");
    assert!(has(&head, "if-match: \"e\""), "{head}");

    options.object_lock = None;
    options.checksum = ChecksumMode::None;
    let stored = put(&connect(options).await, PutMode::Create).await.unwrap();
    assert_eq!((stored.etag.as_deref(), stored.checked), (Some("e"), Checked::Not));
    let head = server.requests.recv().unwrap();
    assert!(!head.contains("checksum"), "{head}");
}

#[tokio::test]
async fn a_login_page_is_never_proof() {
    let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 19\r\nconnection: close\r\n\r\n<html>login</html>\n";
    let server = serve(Act::Answer(page));
    let store = connect(options(&server)).await;
    let stored = put(&store, PutMode::Create).await.unwrap();
    assert_eq!((stored.etag, stored.checked), (None, Checked::Not));
    assert_eq!(store.get("a").await.unwrap_err().kind, FaultKind::Unproven);
    assert_eq!(store.head("a").await.unwrap_err().kind, FaultKind::Unproven);
    assert_eq!(store.list_page("", None).await.unwrap_err().kind, FaultKind::Undecodable);
    let fault = store.multipart("a").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Undecodable);
    assert!(fault.message.contains("login"), "{fault:?}");
    assert_eq!(probe(&store, "mutable/canary").await.unwrap_err().kind, FaultKind::Unproven);
}

#[tokio::test]
async fn another_digest_in_the_answer_is_unproven() {
    let answer = "HTTP/1.1 200 OK\r\netag: \"e\"\r\nx-amz-checksum-sha256: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let store = connect(options(&serve(Act::Answer(answer)))).await;
    assert_eq!(put(&store, PutMode::Create).await.unwrap_err().kind, FaultKind::Unproven);
}

#[tokio::test]
async fn refusals_are_told_apart_by_code_then_status() {
    const SLOW: &str = "HTTP/1.1 503 x\r\ncontent-length: 92\r\nretry-after: 4\r\nx-amz-id-2: i2\r\nconnection: close\r\n\r\n<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Please reduce it</Message></Error>";
    const PAGE: &str =
        "HTTP/1.1 429 x\r\ncontent-length: 4\r\nretry-after: 2\r\nconnection: close\r\n\r\nslow";
    const EMPTY_412: &str = "HTTP/1.1 412 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    const CONFLICT: &str = "HTTP/1.1 409 x\r\ncontent-length: 69\r\nconnection: close\r\n\r\n<Error><Code>ConditionalRequestConflict</Code><Message></Message></Error>";
    const IN_200: &str = "HTTP/1.1 200 OK\r\ncontent-length: 48\r\nconnection: close\r\n\r\n<Error><Code>InternalError</Code></Error>       ";
    let fault = async |answer, mode: PutMode<'static>| {
        let server = serve(Act::Answer(answer));
        put(&connect(options(&server)).await, mode).await.unwrap_err()
    };
    let slow = fault(SLOW, PutMode::Create).await;
    assert_eq!((slow.kind, slow.code.as_deref()), (FaultKind::Answered, Some("SlowDown")));
    assert_eq!(
        (slow.retry_after_ms, slow.extended_request_id.as_deref()),
        (Some(4000), Some("i2"))
    );
    assert!(slow.message.contains("Please reduce it"));
    let page = fault(PAGE, PutMode::Create).await;
    assert_eq!((page.http_status, page.code, page.retry_after_ms), (Some(429), None, Some(2000)));
    assert_eq!(fault(EMPTY_412, PutMode::Create).await.kind, FaultKind::AlreadyExists);
    let update = PutMode::Update { etag: "x" };
    assert_eq!(fault(EMPTY_412, update).await.kind, FaultKind::PreconditionFailed);
    assert_eq!(fault(EMPTY_412, PutMode::Replace).await.kind, FaultKind::Answered);
    let conflict = fault(CONFLICT, PutMode::Create).await;
    assert_eq!(conflict.kind, FaultKind::Answered);
    assert_eq!(conflict.code.as_deref(), Some("ConditionalRequestConflict"));
    let inside = fault(IN_200, PutMode::Create).await;
    assert_eq!((inside.http_status, inside.code.as_deref()), (Some(200), Some("InternalError")));
}

#[tokio::test]
async fn broken_connections_are_transport() {
    let closed = put(&connect(options(&serve(Act::Close))).await, PutMode::Create).await;
    let closed = closed.unwrap_err();
    assert_eq!(
        (closed.kind, closed.io.as_deref()),
        (FaultKind::Transport, Some("ConnectionClosed"))
    );
    let store = connect(options(&serve(Act::ResetInBody))).await;
    let large = Bytes::from(vec![0; 8 << 20]);
    let digest = digest_of(&large);
    let reset = store.put("a", large, &digest, PutMode::Create).await.unwrap_err();
    assert_eq!(reset.kind, FaultKind::Transport, "{reset:?}");
    let short = "HTTP/1.1 200 OK\r\netag: \"e\"\r\ncontent-length: 100\r\nconnection: close\r\n\r\nonly this";
    let store = connect(options(&serve(Act::Answer(short)))).await;
    let cut = get_small(&store, "a", 1000).await.unwrap_err();
    assert_eq!(cut.kind, FaultKind::Transport, "{cut:?}");
    let odd = serve(Act::Answer("SSH-2.0-OpenSSH\r\n"));
    let odd = put(&connect(options(&odd)).await, PutMode::Create).await.unwrap_err();
    assert!(matches!(odd.kind, FaultKind::Other | FaultKind::Transport), "{odd:?}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let server = serve(Act::Silence);
    let mut options = options(&server);
    options.attempt_grace = Duration::from_secs(1);
    let store = connect(options).await;
    let began = Instant::now();
    assert_eq!(put(&store, PutMode::Create).await.unwrap_err().kind, FaultKind::Timeout);
    assert_eq!(store.get("a").await.unwrap_err().kind, FaultKind::Timeout);
    let took = began.elapsed();
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
    drop(server);
}

#[tokio::test]
async fn the_store_shows_itself_without_secrets() {
    let server = serve(Act::Close);
    let mut options = options(&server);
    assert_eq!(
        connect(options.clone()).await.describe(),
        format!("s3://bucket/pre/fix/ at {}", server.endpoint)
    );
    options.endpoint = Some("https://user:pass@host:9000".into());
    let store = connect(options).await;
    assert_eq!(store.describe(), "s3://bucket/pre/fix/ at https://host:9000");
}
