//! Recovery: from the files to the log, and nothing returned that is not durable.
//!
//! Every recovery begins a new segment. When the last one holds little, all of it is copied and the
//! old file becomes a spare, so restarting in a loop neither grows the directory nor writes much;
//! otherwise only the frames without evidence of being on disk are copied.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::group::{head_frames, write_segment};
use super::pool::{Pool, Reserve};
use super::read::{Frame, Next, Reader};
use super::record::{self, Kind};
use super::segment::{self, Found, HEADER_BYTES, Header};
use super::writer::{Active, Old, Tail, Wal};
use super::{Entry, HardState, Identity, Options, Recovered, RecoveryReport, WalError};
use crate::disk::{Disk, FileKind};

/// A last segment with at most this many bytes of frames is copied as a whole: a few milliseconds,
/// and twenty starts in a loop write at most 20 MiB.
const COPY_WHOLE: u64 = 1024 * 1024;
/// But only if it fills at most this part of a segment, so that there is room behind the copy.
const COPY_PART: u64 = 4;

/// The log as it grows while frames are read.
#[derive(Default)]
struct Log {
    identity: Option<Identity>,
    base: Option<(u64, u64)>,
    entries: Vec<Entry>,
    /// Index and term of the last entry or base.
    last: (u64, u64),
    hard_state: HardState,
    /// Highest index seen in the present segment.
    max_index: u64,
}

impl Log {
    fn apply(&mut self, frame: &Frame, reset: bool) -> Result<(), &'static str> {
        match frame.kind {
            Kind::Clean => {}
            Kind::Identity => {
                let identity = record::get_identity(&frame.payload).ok_or("bad identity")?;
                if self.identity.is_some_and(|known| known != identity) {
                    return Err("the segment belongs to another member");
                }
                self.identity = Some(identity);
            }
            Kind::Base => {
                let (base, hard_state) = record::get_base(&frame.payload).ok_or("bad base")?;
                if self.base.is_none() || reset {
                    self.base = Some(base);
                    self.entries.clear();
                    self.last = base;
                } else if base != self.last {
                    return Err("the segment does not continue the one before");
                }
                self.hard_state = hard_state;
                self.max_index = base.0;
            }
            Kind::Batch => {
                let (hard_state, entries) = record::get_batch(&frame.payload).ok_or("bad batch")?;
                self.hard_state = hard_state.unwrap_or(self.hard_state);
                entries.into_iter().try_for_each(|entry| self.push(entry))?;
            }
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry) -> Result<(), &'static str> {
        let Some(base) = &mut self.base else { return Err("an entry before the base") };
        if entry.index > self.last.0 + 1 || entry.index == 0 {
            return Err("entries are missing before it");
        }
        self.last = (entry.index, entry.term);
        self.max_index = self.max_index.max(entry.index);
        if entry.index <= base.0 {
            // Segments before were dropped, so what replaces entries up to the base is final, and
            // the newest of it is the base.
            self.entries.clear();
            if entry.index == base.0 {
                base.1 = entry.term;
            }
            return Ok(());
        }
        self.entries.truncate((entry.index - base.0 - 1) as usize);
        self.entries.push(entry);
        Ok(())
    }
}

fn damage(path: &Path, offset: u64, what: String) -> WalError {
    WalError::Damage { path: path.to_owned(), offset, what }
}

/// Orders the segments of the log; what is not part of it any more is returned second.
fn chain(mut found: Vec<Found>) -> Result<(Vec<Found>, Vec<Found>), WalError> {
    let mut chain = Vec::new();
    let mut obsolete = Vec::new();
    let Some(last) = found.pop() else { return Ok((chain, obsolete)) };
    let mut wanted = last.header;
    chain.push(last);
    while let Some(next) = found.pop() {
        let superseded = next.header.first_frame >= wanted.first_frame;
        if wanted.reset || superseded && next.header.sequence != wanted.previous {
            obsolete.push(next);
        } else if next.header.sequence == wanted.previous {
            wanted = next.header;
            chain.push(next);
        } else {
            let what = format!("segment {:016x} before this one is missing", wanted.previous);
            return Err(damage(&chain[chain.len() - 1].path, 0, what));
        }
    }
    chain.reverse();
    Ok((chain, obsolete))
}

/// What reading the last segment found.
struct LastSegment {
    frames: Vec<Frame>,
    /// Frames up to this one are known to be on disk.
    durable: u64,
    end: u64,
}

struct Recovery<'a> {
    log: Log,
    report: RecoveryReport,
    older: VecDeque<Old>,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Recovery<'_> {
    fn count(&mut self, frame: &Frame) {
        self.report.frames += 1;
        self.report.bytes += frame.end - frame.at;
    }

    fn apply(&mut self, found: &Found, frame: &Frame) -> Result<(), WalError> {
        self.log.apply(frame, found.header.reset).map_err(|what| {
            damage(&found.path, frame.at, format!("{what} (frame {})", frame.sequence))
        })
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        (self.progress)(self.done, self.total);
    }

    /// Reads a segment that others follow; all frames up to `through` were synced before.
    fn read_complete(&mut self, found: &Found, through: u64) -> Result<(), WalError> {
        let mut reader = Reader::new(found);
        let mut at = HEADER_BYTES as u64;
        let mut base = (0, 0);
        for sequence in found.header.first_frame..=through {
            match reader.next(at, sequence)? {
                Next::Frame(frame) => {
                    self.count(&frame);
                    self.apply(found, &frame)?;
                    if frame.kind == Kind::Base {
                        base = self.log.last;
                    }
                    at = frame.end;
                }
                Next::Bad(why) => {
                    let what = format!("{why} (frame {sequence}, the log goes on in a later file)");
                    return Err(damage(&found.path, at, what));
                }
            }
        }
        self.older.push_back(Old {
            path: found.path.clone(),
            sequence: found.header.sequence,
            len: found.len,
            used: at,
            base,
            max_index: self.log.max_index,
        });
        self.advance(found.len);
        Ok(())
    }

    /// Reads the frames of the last segment and decides what its end is.
    fn read_last(&mut self, found: &Found) -> Result<LastSegment, WalError> {
        let mut reader = Reader::new(found);
        let header = &found.header;
        let (mut at, mut sequence) = (HEADER_BYTES as u64, header.first_frame);
        let mut frames: Vec<Frame> = Vec::new();
        let mut durable = header.head_through;
        let why = loop {
            match reader.next(at, sequence)? {
                Next::Bad(why) => break why,
                Next::Frame(frame) => {
                    self.count(&frame);
                    durable = durable.max(frame.synced_through);
                    (at, sequence) = (frame.end, sequence + 1);
                    frames.push(frame);
                }
            }
        };
        let bad = |evidence: String| {
            Err(damage(&found.path, at, format!("{why} (frame {sequence}), {evidence}")))
        };
        if sequence <= header.head_through {
            return bad("which was on disk before the file got its name".to_owned());
        }
        if !frames.last().is_some_and(|f| f.kind == Kind::Clean) {
            let behind = reader.behind(at, sequence)?;
            if let Some(later) = behind.vouched_by {
                return bad(format!("which frame {later} says was on disk"));
            }
            if behind.bytes > 0 {
                self.report.cut_at = Some((found.path.clone(), at));
                self.report.cut_bytes = behind.bytes;
            }
        }
        self.advance(found.len);
        Ok(LastSegment { frames, durable, end: at })
    }
}

impl Wal {
    /// Reads the log, makes all of it durable and returns a writer that continues it in a new
    /// segment. `progress` hears bytes done and bytes in all. Damage is refused and changes nothing
    /// on disk. [`WalError::NoSpace`] on a disk without a spare segment and without room for a copy
    /// of the tail: release the ballast, then call again.
    pub fn recover(
        disk: Arc<dyn Disk>,
        dir: &Path,
        opts: &Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Wal, Recovered), WalError> {
        let missing = || WalError::Missing { dir: dir.to_owned() };
        if !disk.exists(dir)? {
            return Err(missing());
        }
        let listing = segment::list(&*disk, dir)?;
        let (mut segments, obsolete) = chain(listing.segments)?;
        let last = segments.pop().ok_or_else(missing)?;

        let mut recovery = Recovery {
            log: Log::default(),
            report: RecoveryReport { segments: segments.len() + 1, ..Default::default() },
            older: VecDeque::new(),
            done: 0,
            total: segments.iter().chain([&last]).map(|s| s.len).sum(),
            progress,
        };
        for (at, found) in segments.iter().enumerate() {
            let next = segments.get(at + 1).map_or(&last.header, |s| &s.header);
            recovery.read_complete(found, next.first_frame - 1)?;
        }
        if !opts.trust_tail {
            // What a failed sync left in the cache must not be mistaken for what the device has.
            last.file.drop_cache()?;
        }
        let found_last = recovery.read_last(&last)?;

        let limit = COPY_WHOLE.min(opts.segment_bytes / COPY_PART);
        let rewrite = Rewrite::plan(&mut recovery, &last, &found_last, limit)?;
        let Recovery { mut log, mut report, mut older, .. } = recovery;
        let (Some(identity), Some(base)) = (log.identity, log.base) else {
            return Err(damage(&last.path, HEADER_BYTES as u64, "no identity or base".to_owned()));
        };
        if log.last.0 < base.0 {
            let what = format!("the log ends at {} before its start {}", log.last.0, base.0);
            return Err(damage(&last.path, found_last.end, what));
        }
        if log.hard_state.commit > log.last.0 {
            // Written without sync, so it may be ahead of entries that were lost.
            log.hard_state.commit = log.last.0;
            report.commit_lowered = true;
        }
        report.rewritten_frames = rewrite.unproven;

        // From here on the disk is changed.
        let mut pool = Pool::new(&*disk, dir, opts, listing.spares)?;
        for path in listing.temporaries {
            disk.remove(&path, FileKind::Wal)?;
        }
        let mut tail = Tail { last: log.last, hard_state: log.hard_state, ..Tail::default() };
        let active = if opts.trust_tail {
            tail.sequence = last.header.first_frame + found_last.frames.len() as u64 - 1;
            tail.synced = tail.sequence;
            trust(last, &found_last, rewrite.base, log.max_index)?
        } else {
            let header =
                Header { sequence: last.header.sequence + 1, salt: opts.salt, ..rewrite.header };
            let mut active = write_segment(
                &*disk,
                dir,
                &mut pool,
                header,
                rewrite.base,
                &rewrite.frames,
                Reserve::Try,
            )?;
            active.max_index = log.max_index;
            tail.sequence = active.header.head_through;
            tail.synced = tail.sequence;
            let path = last.path.clone();
            if rewrite.whole {
                drop(last.file);
                pool.recycle(&*disk, &path, last.len)?;
            } else {
                older.push_back(Old {
                    path,
                    sequence: last.header.sequence,
                    len: last.len,
                    used: found_last.end,
                    base: rewrite.old_base,
                    max_index: log.max_index,
                });
            }
            active
        };
        for found in obsolete {
            drop(found.file);
            pool.recycle(&*disk, &found.path, found.len)?;
        }
        disk.sync_dir(dir, FileKind::Wal)?;
        let recovered = Recovered {
            identity: Some(identity),
            base,
            entries: log.entries,
            hard_state: log.hard_state,
            clean: found_last.frames.last().is_some_and(|f| f.kind == Kind::Clean),
            report,
        };
        Ok((Wal::new(disk, dir, opts, identity, pool, active, older, tail), recovered))
    }
}

/// What goes into the new segment.
struct Rewrite {
    /// All but sequence and salt.
    header: Header,
    frames: Vec<(Kind, Bytes)>,
    /// Whether these are all frames of the last segment.
    whole: bool,
    /// Log position before the new segment, and before the one it follows.
    base: (u64, u64),
    old_base: (u64, u64),
    /// Frames that had no evidence of being on disk.
    unproven: u64,
}

impl Rewrite {
    /// Applies the frames of the last segment and collects what has to be copied.
    fn plan(
        recovery: &mut Recovery<'_>,
        last: &Found,
        found: &LastSegment,
        copy_whole: u64,
    ) -> Result<Self, WalError> {
        let whole = found.end <= copy_whole;
        let mut rewrite = Rewrite {
            header: last.header,
            frames: Vec::new(),
            whole,
            base: (0, 0),
            old_base: (0, 0),
            unproven: 0,
        };
        let is_proven = |frame: &Frame| frame.sequence <= found.durable;
        for frame in found.frames.iter().filter(|f| is_proven(f)) {
            recovery.apply(last, frame)?;
            if frame.kind == Kind::Base {
                rewrite.old_base = recovery.log.last;
            }
        }
        rewrite.base = rewrite.old_base;
        if !whole {
            let Some(identity) = recovery.log.identity else {
                return Err(damage(&last.path, HEADER_BYTES as u64, "no identity".to_owned()));
            };
            rewrite.base = recovery.log.last;
            rewrite.frames = head_frames(&identity, rewrite.base, &recovery.log.hard_state);
            rewrite.header.previous = last.header.sequence;
            rewrite.header.first_frame = found.durable + 1;
            rewrite.header.reset = false;
        }
        for frame in found.frames.iter().filter(|f| !is_proven(f)) {
            recovery.apply(last, frame)?;
            rewrite.unproven += u64::from(frame.kind != Kind::Clean);
        }
        let copied = found.frames.iter().filter(|f| f.kind != Kind::Clean);
        let copied = copied.filter(|f| whole || !is_proven(f));
        rewrite.frames.extend(copied.map(|f| (f.kind, f.payload.clone())));
        Ok(rewrite)
    }
}

/// The broken rule: go on where the last readable frame ends.
fn trust(
    last: Found,
    found: &LastSegment,
    base: (u64, u64),
    max_index: u64,
) -> Result<Active, WalError> {
    Ok(Active {
        capacity: last.len,
        position: found.end,
        head_end: found.end,
        file: last.file,
        path: last.path,
        header: last.header,
        base,
        max_index,
    })
}
