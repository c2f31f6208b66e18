//! The lease between two writers, in a folder whose file times are set by hand.

use std::fs::File;
use std::time::SystemTime;

use tempfile::TempDir;

use super::*;
use crate::archive::Archive;
use crate::store::LocalStore;

struct Bucket {
    dir: TempDir,
    store: Arc<dyn Store>,
    capabilities: Capabilities,
}

const BOTH: [bool; 2] = [true, false];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

impl Bucket {
    /// With conditional writes, or as if the store did not honour them.
    async fn new(conditional: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(LocalStore::open(dir.path()).unwrap());
        let mut capabilities =
            Archive::probe(store.as_ref(), &"db1".parse().unwrap()).await.unwrap();
        assert!(capabilities.conditional_replace && capabilities.create_only_put);
        capabilities.conditional_replace = conditional;
        Self { dir, store, capabilities }
    }

    async fn acquire(&self, writer: &str, at: Timestamp) -> Result<Lease, LeaseError> {
        self.acquire_as(writer, at, TakeOver::WhenStale).await
    }

    async fn acquire_as(
        &self,
        writer: &str,
        at: Timestamp,
        take_over: TakeOver,
    ) -> Result<Lease, LeaseError> {
        let host = format!("host-{writer}");
        let (store, source) = (Arc::clone(&self.store), "db1".parse().unwrap());
        Lease::acquire(store, source, &self.capabilities, (writer, &host), take_over, at).await
    }

    /// Makes the lease this old.
    fn age(&self, seconds: u64) {
        let path = self.dir.path().join("mutable/db1/writer.json");
        let then = SystemTime::now() - Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    }

    async fn look(&self) -> (LeaseState, bool) {
        let source = "db1".parse().unwrap();
        Lease::look(self.store.as_ref(), &source).await.unwrap().unwrap()
    }
}

fn held_by<T: std::fmt::Debug>(outcome: Result<T, LeaseError>) -> (String, u64) {
    match outcome.unwrap_err() {
        LeaseError::Held { host, age_seconds, .. } => (host, age_seconds),
        LeaseError::Fault(fault) => panic!("{fault}"),
    }
}

#[tokio::test]
async fn a_fresh_lease_of_another_is_held() {
    for conditional in BOTH {
        let bucket = Bucket::new(conditional).await;
        let mut a = bucket.acquire("a", at(1)).await.unwrap();
        let error = bucket.acquire("b", at(2)).await.unwrap_err();
        assert!(error.to_string().contains("host-a") && error.to_string().contains("--take-over"));
        bucket.age(299);
        let (host, age) = held_by(bucket.acquire("b", at(3)).await);
        assert_eq!(host, "host-a");
        assert!((299..=301).contains(&age), "{age}");
        a.renew().await.unwrap();
        assert!(bucket.look().await.1);
    }
}

#[tokio::test]
async fn a_stale_lease_is_taken_over_and_its_owner_finds_out() {
    for conditional in BOTH {
        let bucket = Bucket::new(conditional).await;
        let mut a = bucket.acquire("a", at(1)).await.unwrap();
        assert_eq!(bucket.look().await.0.epoch, 1);
        bucket.age(301);
        assert!(!bucket.look().await.1);
        let mut b = bucket.acquire("b", at(2)).await.unwrap();
        let (state, live) = bucket.look().await;
        assert_eq!((state.writer_id.as_str(), state.epoch, live), ("b", 2, true));
        assert_eq!(held_by(a.renew().await).0, "host-b");
        // Whoever lost it does not release it for the other.
        assert_eq!(held_by(a.release().await).0, "host-b");
        b.renew().await.unwrap();
        assert!(!bucket.look().await.0.released);
    }
}

#[tokio::test]
async fn a_released_lease_is_free_at_once() {
    for conditional in BOTH {
        let bucket = Bucket::new(conditional).await;
        let a = bucket.acquire("a", at(1)).await.unwrap();
        a.release().await.unwrap();
        let (state, live) = bucket.look().await;
        assert!(state.released && !live);
        bucket.acquire("b", at(2)).await.unwrap();
        assert_eq!(bucket.look().await.0.epoch, 2);
        // The next start of the same writer is another epoch of nobody else.
        held_by(bucket.acquire("a", at(3)).await);
    }
}

#[tokio::test]
async fn a_fresh_lease_is_taken_when_the_operator_says_so() {
    for conditional in BOTH {
        let bucket = Bucket::new(conditional).await;
        let mut a = bucket.acquire("a", at(1)).await.unwrap();
        bucket.acquire_as("b", at(2), TakeOver::Now).await.unwrap();
        assert_eq!(held_by(a.renew().await).0, "host-b");
    }
}

#[tokio::test]
async fn the_same_writer_takes_its_own_lease_again_after_a_crash() {
    for conditional in BOTH {
        let bucket = Bucket::new(conditional).await;
        drop(bucket.acquire("a", at(1)).await.unwrap());
        let mut again = bucket.acquire("a", at(2)).await.unwrap();
        again.renew().await.unwrap();
        let (state, live) = bucket.look().await;
        assert_eq!((state.epoch, live), (1, true));
        again.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_clone_with_the_same_writer_id_is_told_from_us() {
    for conditional in BOTH {
        let bucket = Bucket::new(conditional).await;
        let mut original = bucket.acquire("a", at(1)).await.unwrap();
        original.renew().await.unwrap();
        let mut clone = bucket.acquire("a", at(2)).await.unwrap();
        held_by(original.renew().await);
        clone.renew().await.unwrap();
        clone.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lease_that_somebody_removed_is_written_again() {
    for conditional in BOTH {
        let bucket = Bucket::new(conditional).await;
        let mut a = bucket.acquire("a", at(1)).await.unwrap();
        std::fs::remove_file(bucket.dir.path().join("mutable/db1/writer.json")).unwrap();
        a.renew().await.unwrap();
        assert_eq!(bucket.look().await.0.writer_id, "a");
    }
}

#[tokio::test]
async fn a_lease_that_does_not_decode_is_a_fault_and_stays() {
    let bucket = Bucket::new(true).await;
    drop(bucket.acquire("a", at(1)).await.unwrap());
    let path = bucket.dir.path().join("mutable/db1/writer.json");
    std::fs::write(&path, "{").unwrap();
    match bucket.acquire("a", at(2)).await.unwrap_err() {
        LeaseError::Fault(fault) => assert_eq!(fault.kind, FaultKind::Undecodable),
        error @ LeaseError::Held { .. } => panic!("{error}"),
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), "{");
}
