//! Election safety, log matching, leader completeness, and what a disk must never forget.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use assay::consensus::{Entry, HardState, Restored};

use super::super::frame::Verdict;
use super::super::node::Durable;
use crate::check;

/// What a member has written to its log, synced or not.
#[derive(Default)]
struct Mirror {
    base: (u64, u64),
    terms: BTreeMap<u64, u64>,
    /// Batches on their way to the disk: number, and terms by index.
    under_way: Vec<(u64, BTreeMap<u64, u64>)>,
    /// What the disk has confirmed, terms by index.
    confirmed: BTreeMap<u64, u64>,
}

impl Mirror {
    fn term(&self, index: u64) -> Option<u64> {
        if index == self.base.0 { Some(self.base.1) } else { self.terms.get(&index).copied() }
    }
}

#[derive(Default)]
pub struct Raft {
    /// Who led in a term.
    leaders: BTreeMap<u64, u64>,
    mirrors: BTreeMap<u64, Mirror>,
    /// Content and predecessor's term of the entry at (index, term), wherever it was seen.
    entries: BTreeMap<(u64, u64), (u64, Option<u64>)>,
    /// Newest state that a member knew to be on its disk.
    durable: BTreeMap<u64, Durable>,
    /// Term of every committed entry.
    pub committed: BTreeMap<u64, u64>,
    pub elections: u64,
}

fn content(entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    (entry.kind, &entry.data[..], &entry.context[..]).hash(&mut hasher);
    hasher.finish()
}

impl Raft {
    /// At most one leader in a term, and it holds everything that was committed up to then.
    pub fn leads(&mut self, id: u64, term: u64) -> Verdict {
        self.elections += 1;
        let known = *self.leaders.entry(term).or_insert(id);
        check!(known == id, "two leaders in term {term}: {known} and {id}");
        let mirror = self.mirrors.entry(id).or_default();
        let mut newest = self.committed.iter().rev().filter(|(_, of)| **of <= term);
        if let Some((index, of)) = newest.next()
            && *index > mirror.base.0
        {
            check!(
                mirror.term(*index) == Some(*of),
                "{id} leads term {term} and has {:?} at committed {index} of term {of}",
                mirror.term(*index)
            );
        }
        Ok(())
    }

    /// A member writes entries to its log.
    pub fn writes(&mut self, id: u64, batch: u64, entries: &[Entry]) -> Verdict {
        let Some(first) = entries.first() else { return Ok(()) };
        let mirror = self.mirrors.entry(id).or_default();
        for (index, old) in mirror.terms.split_off(&first.index) {
            let new = index.checked_sub(first.index).and_then(|at| entries.get(at as usize));
            check!(
                self.committed.get(&index) != Some(&old) || new.map(|e| e.term) == Some(old),
                "{id} gives up entry {index} of term {old}, which is committed"
            );
        }
        for entry in entries {
            let before = mirror.term(entry.index - 1);
            let value = (content(entry), before);
            let known = *self.entries.entry((entry.index, entry.term)).or_insert(value);
            check!(
                known.0 == value.0 && (known.1 == before || known.1.is_none() || before.is_none()),
                "{id} has another entry at {} of term {}",
                entry.index,
                entry.term
            );
            mirror.terms.insert(entry.index, entry.term);
        }
        let terms = entries.iter().map(|entry| (entry.index, entry.term)).collect();
        mirror.under_way.push((batch, terms));
        Ok(())
    }

    /// The log begins anew.
    pub fn reset(&mut self, id: u64, base: (u64, u64)) {
        self.mirrors.insert(id, Mirror { base, ..Mirror::default() });
    }

    /// The log's thread reported this as synced.
    pub fn synced(&mut self, id: u64, batch: Option<u64>, durable: Durable) -> Verdict {
        let mirror = self.mirrors.entry(id).or_default();
        for (_, terms) in mirror.under_way.extract_if(.., |(of, _)| Some(*of) <= batch) {
            if let Some((first, _)) = terms.first_key_value() {
                mirror.confirmed.split_off(first);
            }
            mirror.confirmed.extend(terms);
        }
        let before = self.durable.insert(id, durable).unwrap_or_default();
        check!(durable.term >= before.term, "{id} goes back from {before:?} to {durable:?}");
        Ok(())
    }

    /// The log of a member is replaced by another's.
    pub fn forget(&mut self, id: u64) {
        self.durable.remove(&id);
        self.mirrors.remove(&id);
    }

    /// A member starts with what it found.
    pub fn restarted(&mut self, id: u64, found: HardState, restored: &Restored) -> Verdict {
        if let Some(before) = self.durable.get(&id) {
            check!(
                found.term > before.term
                    || found.term == before.term && [0, found.vote].contains(&before.vote),
                "{id} had {before:?} on disk and finds {found:?}"
            );
        }
        let terms = restored.entries.iter().map(|entry| (entry.index, entry.term)).collect();
        // A term whose vote was not on disk was told to nobody, nor were its entries: a sole voter
        // that forgets them may lead the same term anew.
        let known = self.durable.get(&id).map_or(0, |durable| durable.term);
        let leaders = &self.leaders;
        self.entries.retain(|(_, term), _| *term <= known || leaders.get(term) != Some(&id));
        let confirmed = std::mem::take(&mut self.mirrors.entry(id).or_default().confirmed);
        let mirror = Mirror { base: restored.base, terms, ..Mirror::default() };
        // Others count on this member to hold what it confirmed.
        let mut promised = confirmed.iter().rev();
        let newest = promised.find(|(index, term)| self.committed.get(index) == Some(term));
        if let Some((index, term)) = newest {
            check!(
                *index <= restored.applied.0 || mirror.term(*index) == Some(*term),
                "{id} had confirmed entry {index} of term {term}, which is committed, and lost it"
            );
        }
        let confirmed = mirror.terms.clone();
        self.mirrors.insert(id, Mirror { confirmed, ..mirror });
        Ok(())
    }

    /// A start drops its log and goes on behind what the store holds.
    pub fn dropped(&mut self, id: u64, base: (u64, u64)) -> Verdict {
        let known = self.mirrors.entry(id).or_default().confirmed.iter().rev();
        let newest = known.clone().find(|(index, term)| self.committed.get(index) == Some(term));
        if let Some((index, _)) = newest {
            check!(*index <= base.0, "{id} drops its log up to {index} and begins behind {base:?}");
        }
        self.reset(id, base);
        Ok(())
    }
}
