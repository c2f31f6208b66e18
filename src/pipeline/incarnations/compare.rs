//! What is on disk against what is committed: heads, and whole files where a head does not tell.
//!
//! **Cancellation.** Reads only.

use std::fs::File;

use super::{Incarnations, Seen};
use crate::archive::{Comparison, compare};
use crate::fault::{Fault, FaultKind, Operation};
use crate::pipeline::on_disk::OnDisk;
use crate::segment::{SegmentName, SegmentNumber};

impl Incarnations {
    /// A file below one that is what was archived, and is not what was archived itself: it rotted or
    /// was touched after it was archived. That is no other history, and the archive has its bytes.
    pub(super) fn forgive(&mut self, present: &[OnDisk<'_>], rotten: SegmentNumber) {
        let Some(newest) = &mut self.newest else { return };
        for on_disk in present.iter().filter(|on_disk| on_disk.number == rotten) {
            let seen = newest.seen.insert(on_disk.number, Seen::of(on_disk));
            if seen.is_none_or(|seen| seen.head != on_disk.peek.head) {
                tracing::error!(
                    segment = %on_disk.listed.name,
                    "the file on disk is not what was archived under its name, though later ones are: \
                     it was damaged on this host; the archive keeps the sound bytes"
                );
            }
        }
        newest.compared = true;
    }

    /// The highest known number that has other bytes on disk.
    pub(super) async fn differs(
        &mut self,
        present: &[OnDisk<'_>],
    ) -> Result<Option<SegmentNumber>, Fault> {
        let initial = self.newest.as_ref().is_some_and(|newest| !newest.compared);
        // The head may survive what changed the tail (a VM rolled back): the highest is compared
        // whole. Where it is the same, so are those below it: each holds what came before.
        let mut whole = initial;
        for on_disk in present.iter().rev() {
            let Some(newest) = &self.newest else { return Ok(None) };
            let number = on_disk.number;
            let committed = newest.committed.contains(&number);
            // A head that was seen and not committed names nothing in the archive, but for the one
            // that is part of the incarnation's name: a damaged file may have been mended meanwhile.
            if !committed && number != newest.record.first.number {
                continue;
            }
            let same = match newest.seen.get(&number) {
                Some(seen) if seen.head != on_disk.peek.head => Ok(false),
                // A second RESET within one second makes a file with the head of the first.
                Some(seen) if committed && (whole || seen.is_other_file(on_disk)) => {
                    self.is_committed_as(on_disk).await
                }
                None if whole => self.is_committed_as(on_disk).await,
                Some(_) => Ok(true),
                None if initial => Ok(true),
                // Committed, gone for a while, and there again.
                None => self.has_committed_head(on_disk).await,
            };
            match same {
                Ok(true) => {}
                Ok(false) => return Ok(Some(number)),
                Err(fault) if matches!(fault.kind, FaultKind::LocalIo | FaultKind::SourceGone) => {
                    tracing::warn!(%fault, "a file cannot be compared with what was archived of it");
                    continue;
                }
                Err(fault) => return Err(fault),
            }
            whole = whole && !committed;
            if let Some(newest) = &mut self.newest {
                newest.seen.insert(number, Seen::of(on_disk));
            }
        }
        if let Some(newest) = &mut self.newest {
            newest.compared = true;
        }
        Ok(None)
    }

    /// Whether a file has the head of what is committed under its number.
    async fn has_committed_head(&self, on_disk: &OnDisk<'_>) -> Result<bool, Fault> {
        let Some(newest) = &self.newest else { return Ok(false) };
        let found = self.archive.manifest(&newest.record.incarnation, on_disk.number).await?;
        Ok(found.is_some_and(|manifest| manifest.head == on_disk.peek.head))
    }

    /// Whether a file is the segment committed under its number in the newest incarnation.
    async fn is_committed_as(&self, on_disk: &OnDisk<'_>) -> Result<bool, Fault> {
        let Some(newest) = &self.newest else { return Ok(false) };
        let found = self.archive.manifest(&newest.record.incarnation, on_disk.number).await?;
        let Some(manifest) = found else { return Ok(false) };
        if on_disk.peek.head != manifest.head {
            return Ok(false);
        }
        let path = on_disk.listed.path.clone();
        let compared = tokio::task::spawn_blocking({
            let path = path.clone();
            move || compare(|| File::open(&path), &manifest)
        });
        match compared.await {
            Ok(Ok(comparison)) => Ok(comparison == Comparison::Same),
            Ok(Err(error)) => Err(Fault::local(Operation::ReadSource, &path, &error)),
            Err(error) => {
                Err(Fault::new(Operation::ReadSource, FaultKind::Other, error.to_string()))
            }
        }
    }

    /// The highest number whose bytes on disk are those that the newest incarnation has committed.
    pub(super) async fn last_shared(
        &self,
        present: &[OnDisk<'_>],
    ) -> Result<Option<(SegmentNumber, SegmentName)>, Fault> {
        let Some(newest) = &self.newest else { return Ok(None) };
        for on_disk in present.iter().rev() {
            // Of what is not committed nothing is known that could be compared.
            let same =
                newest.committed.contains(&on_disk.number) && self.is_committed_as(on_disk).await?;
            if same {
                return Ok(Some((on_disk.number, on_disk.listed.name.clone())));
            }
        }
        Ok(None)
    }
}
