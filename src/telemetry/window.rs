//! A histogram of the recent past, from one that only grows.

use super::histogram::HistogramSnapshot;
use std::collections::VecDeque;

/// Parts of a window: it is longer than asked for by one of them at most.
const PARTS: u64 = 12;

/// Remembers what a growing histogram held before, so that the difference is the recent past.
#[derive(Debug)]
pub struct Window {
    length_ns: u64,
    marks: VecDeque<(u64, HistogramSnapshot)>,
}

impl Window {
    /// A window of this length that begins now, with what the histogram holds now.
    pub fn new(length_ns: u64, now_ns: u64, total: HistogramSnapshot) -> Self {
        Window { length_ns, marks: VecDeque::from([(now_ns, total)]) }
    }

    /// The samples since the window's beginning. May be called at any distance.
    pub fn recent(&mut self, now_ns: u64, total: &HistogramSnapshot) -> HistogramSnapshot {
        let part = self.length_ns / PARTS;
        if self.marks.back().is_none_or(|(at, _)| now_ns.saturating_sub(*at) >= part) {
            self.marks.push_back((now_ns, total.clone()));
        }
        // The oldest mark that is still needed is the last one before the beginning.
        let begin = now_ns.saturating_sub(self.length_ns);
        while self.marks.get(1).is_some_and(|(at, _)| *at <= begin) {
            self.marks.pop_front();
        }
        match self.marks.front() {
            Some((_, oldest)) => total.since(oldest),
            None => total.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::histogram::LatencyHistogram;

    #[test]
    fn old_samples_leave_and_recent_ones_stay() {
        let histogram = LatencyHistogram::new();
        histogram.record_ns(1_000_000);
        let mut window = Window::new(3_600, 0, histogram.snapshot());
        assert_eq!(window.recent(1, &histogram.snapshot()).count, 0, "before the window");
        let mut most = 0;
        for now in (0..40_000).step_by(100) {
            histogram.record_ns(50_000_000);
            most = most.max(window.recent(now, &histogram.snapshot()).count);
        }
        // 36 samples per window, and one part of twelve more at most.
        assert!((36..=40).contains(&most), "{most}");
        let recent = window.recent(100_000, &histogram.snapshot());
        assert!(recent.count <= 40);
        assert_eq!(window.recent(200_000, &histogram.snapshot()).count, 0);
        assert!(window.marks.len() <= 14);
    }
}
