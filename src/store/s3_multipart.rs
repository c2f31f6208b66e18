//! Uploads in parts to an S3-compatible server.
//!
//! **Invariants.** A multipart object is `ByStore` only where the store echoed the SHA-256 of each
//! part and the composite of all. A part without an ETag is no part.
//!
//! **Crash, cancellation.** An upload that nobody ends stays, and costs, until it is swept.

use async_trait::async_trait;
use aws_sdk_s3::types::{ChecksumAlgorithm, ChecksumType, CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::s3::S3Store;
use super::s3_answer::{condition, conditions, plain_etag};
use super::s3_fault::{fault, upload_id_of};
use super::{Checked, Multipart, Part, PutMode, Stored};
use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::Digest;

#[derive(Debug)]
struct S3Multipart {
    store: S3Store,
    key: String,
    upload_id: String,
}

pub(super) async fn create(store: &S3Store, key: &str) -> Result<Box<dyn Multipart>, Fault> {
    let placement = store.placement(key);
    let sha256 = store.sends_sha256();
    let answer = store
        .inner
        .client
        .create_multipart_upload()
        .bucket(&store.inner.options.bucket)
        .key(store.full(key))
        .set_checksum_algorithm(sha256.then_some(ChecksumAlgorithm::Sha256))
        .set_checksum_type(sha256.then_some(ChecksumType::Composite))
        .set_expected_bucket_owner(store.owner())
        .set_storage_class(placement.storage_class)
        .set_server_side_encryption(placement.encryption)
        .set_ssekms_key_id(placement.kms_key)
        .set_object_lock_mode(placement.lock)
        .set_object_lock_retain_until_date(placement.retain_until)
        .send()
        .await;
    let upload_id = match answer {
        Ok(answer) => answer.upload_id,
        Err(error) => match upload_id_of(&error) {
            Some(id) => Some(id),
            None => return Err(fault(Operation::CreateMultipart, key, &error)),
        },
    };
    let Some(upload_id) = upload_id.filter(|id| !id.is_empty()) else {
        let message = "the answer has no upload id; the endpoint does not speak S3";
        return Err(Fault::new(Operation::CreateMultipart, FaultKind::Unproven, message).at(key));
    };
    Ok(Box::new(S3Multipart { store: store.clone(), key: key.to_owned(), upload_id }))
}

/// The SHA-256 that S3 gives a multipart object: of its parts' SHA-256 one after the other.
fn composite(parts: &[Part]) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.digest.as_bytes());
    }
    Digest::from_bytes(hash.finalize().into())
}

impl S3Multipart {
    async fn end(&self) -> Result<(), Fault> {
        let answer = self
            .store
            .inner
            .client
            .abort_multipart_upload()
            .bucket(&self.store.inner.options.bucket)
            .key(self.store.full(&self.key))
            .upload_id(&self.upload_id)
            .set_expected_bucket_owner(self.store.owner())
            .send()
            .await
            .map_err(|error| fault(Operation::AbortMultipart, &self.key, &error));
        match answer {
            Ok(_) => Ok(()),
            Err(gone) if gone.code.as_deref() == Some("NoSuchUpload") => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    async fn send_complete(&self, parts: &[Part], mode: PutMode<'_>) -> Result<Stored, Fault> {
        let store = &self.store;
        let (if_none_match, if_match) = conditions(mode);
        let mut listed = CompletedMultipartUpload::builder();
        for part in parts {
            listed = listed.parts(
                CompletedPart::builder()
                    .part_number(i32::try_from(part.number).unwrap_or(i32::MAX))
                    .set_e_tag(part.etag.clone())
                    .set_checksum_sha256(store.sha256_header(&part.digest))
                    .build(),
            );
        }
        let answer = store
            .inner
            .client
            .complete_multipart_upload()
            .bucket(&store.inner.options.bucket)
            .key(store.full(&self.key))
            .upload_id(&self.upload_id)
            .multipart_upload(listed.build())
            .set_if_none_match(if_none_match)
            .set_if_match(if_match)
            .set_expected_bucket_owner(store.owner())
            .customize()
            // A server may take long to put the parts together; it sends blanks meanwhile.
            .config_override(store.limit(parts.iter().map(|part| part.size).sum()))
            .send()
            .await
            .map_err(|error| {
                condition(fault(Operation::CompleteMultipart, &self.key, &error), mode)
            })?;
        let etag = plain_etag(answer.e_tag());
        let echo = answer.checksum_sha256().map(|text| text.split('-').next().unwrap_or(text));
        let whole =
            store.echoed(Operation::CompleteMultipart, &self.key, &composite(parts), echo)?;
        let each = parts.iter().all(|part| part.checked == Checked::ByStore);
        let checked = if etag.is_some() && each { whole } else { Checked::Not };
        let size = parts.iter().map(|part| part.size).sum();
        Ok(Stored { etag, version_id: answer.version_id, size, checked })
    }
}

#[async_trait]
impl Multipart for S3Multipart {
    async fn part(&self, number: u32, bytes: Bytes, digest: &Digest) -> Result<Part, Fault> {
        let store = &self.store;
        let size = bytes.len() as u64;
        let answer = store
            .inner
            .client
            .upload_part()
            .bucket(&store.inner.options.bucket)
            .key(store.full(&self.key))
            .upload_id(&self.upload_id)
            .part_number(i32::try_from(number).unwrap_or(i32::MAX))
            .content_length(i64::try_from(size).unwrap_or(i64::MAX))
            .set_checksum_sha256(store.sha256_header(digest))
            .set_expected_bucket_owner(store.owner())
            .body(store.body_of(bytes))
            .customize()
            .config_override(store.limit(size))
            .disable_payload_signing()
            .send()
            .await
            .map_err(|error| fault(Operation::UploadPart, &self.key, &error))?;
        let checked =
            store.echoed(Operation::UploadPart, &self.key, digest, answer.checksum_sha256())?;
        let Some(etag) = answer.e_tag.filter(|etag| !etag.is_empty()) else {
            let message = "the answer has no ETag; the endpoint does not speak S3";
            let fault = Fault::new(Operation::UploadPart, FaultKind::Unproven, message);
            return Err(fault.at(self.key.as_str()));
        };
        Ok(Part { number, size, digest: *digest, etag: Some(etag), checked })
    }

    async fn complete(
        self: Box<Self>,
        mut parts: Vec<Part>,
        mode: PutMode<'_>,
    ) -> Result<Stored, Fault> {
        parts.sort_unstable_by_key(|part| part.number);
        let outcome = self.send_complete(&parts, mode).await;
        if let Err(fault) = &outcome {
            // Without an answer the store may be at work on it still: aborting would race it.
            let refused = matches!(
                fault.kind,
                FaultKind::Answered | FaultKind::AlreadyExists | FaultKind::PreconditionFailed
            );
            if refused && let Err(left) = self.end().await {
                tracing::debug!(key = %self.key, fault = %left, "upload is left to the sweep");
            }
        }
        outcome
    }

    async fn abort(self: Box<Self>) -> Result<(), Fault> {
        self.end().await
    }
}
