//! Listings of an S3-compatible server, and the sweep of uploads that nobody ended.
//!
//! **Invariants.** Only keys under the store's prefix are seen or swept. A truncated page without a
//! token is a fault: a listing is never silently short.

use std::time::Duration;

use super::s3::S3Store;
use super::s3_answer::{StoreClock, plain_etag, timestamp};
use super::s3_fault::fault;
use super::{ObjectMeta, Page, key};
use crate::fault::{Fault, FaultKind, Operation};

/// Most pages of folders or uploads that are read.
const PAGES_MAX: usize = 10_000;

fn endless(operation: Operation, prefix: &str) -> Fault {
    let message = "the listing does not end, or is cut off without a token to go on";
    Fault::new(operation, FaultKind::Unproven, message).at(prefix)
}

pub(super) async fn page(
    store: &S3Store,
    prefix: &str,
    token: Option<String>,
) -> Result<Page, Fault> {
    key::check_prefix(Operation::List, prefix)?;
    let clock = StoreClock::default();
    let answer = store
        .inner
        .client
        .list_objects_v2()
        .bucket(&store.inner.options.bucket)
        .prefix(store.full(prefix))
        .set_continuation_token(token)
        .set_expected_bucket_owner(store.owner())
        .customize()
        .interceptor(clock.clone())
        .send()
        .await
        .map_err(|error| fault(Operation::List, prefix, &error))?;
    let mut objects = Vec::with_capacity(answer.contents().len());
    for object in answer.contents() {
        let Some(name) = object.key().and_then(|key| key.strip_prefix(&store.inner.prefix)) else {
            continue;
        };
        // Consoles make "folders" as empty objects; they are no keys of ours.
        if name.is_empty() || name.ends_with('/') {
            continue;
        }
        objects.push(ObjectMeta {
            key: name.to_owned(),
            size: object.size().and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
            etag: plain_etag(object.e_tag()),
            version_id: None,
            last_modified: timestamp(object.last_modified()),
            age: clock.age(object.last_modified()),
            sha256: None,
        });
    }
    let next = answer.next_continuation_token().filter(|token| !token.is_empty());
    if answer.is_truncated() == Some(true) && next.is_none() {
        return Err(endless(Operation::List, prefix));
    }
    let next = next.filter(|_| answer.is_truncated() != Some(false)).map(str::to_owned);
    Ok(Page { objects, next })
}

pub(super) async fn folders(store: &S3Store, prefix: &str) -> Result<Vec<String>, Fault> {
    key::check_prefix(Operation::List, prefix)?;
    let full = store.full(prefix);
    let mut names = Vec::new();
    let mut token: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let answer = store
            .inner
            .client
            .list_objects_v2()
            .bucket(&store.inner.options.bucket)
            .prefix(&full)
            .delimiter("/")
            .set_continuation_token(token.clone())
            .set_expected_bucket_owner(store.owner())
            .send()
            .await
            .map_err(|error| fault(Operation::List, prefix, &error))?;
        for folder in answer.common_prefixes() {
            let name = folder.prefix().and_then(|name| name.strip_prefix(&full));
            let name = name.map(|name| name.trim_end_matches('/'));
            names.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        if answer.is_truncated() != Some(true) {
            names.sort_unstable();
            names.dedup();
            return Ok(names);
        }
        if answer.next_continuation_token.is_none() || answer.next_continuation_token == token {
            break;
        }
        token = answer.next_continuation_token;
    }
    Err(endless(Operation::List, prefix))
}

pub(super) async fn abort_stale_uploads(
    store: &S3Store,
    prefix: &str,
    older_than: Duration,
) -> Result<u64, Fault> {
    key::check_prefix(Operation::ListMultipart, prefix)?;
    let full = store.full(prefix);
    let mut stale = Vec::new();
    let (mut at_key, mut at_upload): (Option<String>, Option<String>) = (None, None);
    let mut ended = false;
    for _ in 0..PAGES_MAX {
        let clock = StoreClock::default();
        let answer = store
            .inner
            .client
            .list_multipart_uploads()
            .bucket(&store.inner.options.bucket)
            .prefix(&full)
            .set_key_marker(at_key.clone())
            .set_upload_id_marker(at_upload.clone())
            .set_expected_bucket_owner(store.owner())
            .customize()
            .interceptor(clock.clone())
            .send()
            .await
            .map_err(|error| fault(Operation::ListMultipart, prefix, &error))?;
        for upload in answer.uploads() {
            let age = clock.age(upload.initiated());
            let ours = upload.key().filter(|key| key.starts_with(&full));
            let is_stale = age.is_some_and(|age| age >= older_than);
            if let (Some(key), Some(id), true) = (ours, upload.upload_id(), is_stale) {
                stale.push((key.to_owned(), id.to_owned()));
            }
        }
        let next = (answer.next_key_marker, answer.next_upload_id_marker);
        if answer.is_truncated != Some(true) {
            ended = true;
            break;
        }
        if next.0.is_none() || next == (at_key.clone(), at_upload.clone()) {
            break;
        }
        (at_key, at_upload) = next;
    }
    let mut aborted = 0;
    for (key, id) in stale {
        let answer = store
            .inner
            .client
            .abort_multipart_upload()
            .bucket(&store.inner.options.bucket)
            .key(&key)
            .upload_id(id)
            .set_expected_bucket_owner(store.owner())
            .send()
            .await
            .map_err(|error| fault(Operation::AbortMultipart, &key, &error));
        match answer {
            Ok(_) => aborted += 1,
            // Ended by somebody else meanwhile.
            Err(gone) if gone.code.as_deref() == Some("NoSuchUpload") => {}
            Err(fault) => return Err(fault),
        }
    }
    if ended { Ok(aborted) } else { Err(endless(Operation::ListMultipart, prefix)) }
}
