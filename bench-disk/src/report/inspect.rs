//! What lies under a directory, and what each part of it means, in 80 columns.

use super::wrap;
use crate::env::Environment;
use crate::env::block::Leaf;
use crate::env::meaning;
use crate::identity::Identity;
use crate::verdict;
use std::fmt::Write;

/// Where values begin.
const VALUE: usize = 14;

/// Where the remark about a value begins.
const REMARK: usize = 16;

/// Collects lines.
#[derive(Default)]
struct Page(String);

impl Page {
    fn title(&mut self, title: &str) {
        let blank = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{blank}{title}");
    }

    fn row(&mut self, name: &str, value: &str) {
        let width = VALUE - 3;
        self.0.push_str(&wrap("  ", VALUE, &format!("{name:<width$} {value}")));
    }

    /// What the row above means.
    fn remark(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push_str(&wrap(&" ".repeat(VALUE), REMARK, text));
        }
    }
}

/// The whole text.
pub fn render(environment: &Environment) -> String {
    let mut page = Page::default();
    file_system(&mut page, environment);
    devices(&mut page, environment);
    limits(&mut page, environment);
    if !environment.unread.is_empty() {
        page.title("NOT READ");
        for missing in &environment.unread {
            page.0.push_str(&wrap("  ", 4, missing));
        }
    }
    if !environment.findings.is_empty() {
        page.title("FINDINGS");
        for finding in &environment.findings {
            let text = format!("{}: {} [{}]", finding.severity.title(), finding.text, finding.code);
            page.0.push_str(&wrap("  ", 4, &text));
        }
    }
    page.0.push('\n');
    page.0.push_str(&wrap("", 2, &answer(environment)));
    page.0
}

/// The last sentence.
fn answer(environment: &Environment) -> String {
    if environment.refusals().next().is_some() {
        return "REFUSED: not a place for a consensus log; `bench-disk explain CODE` says more \
                about a finding"
            .into();
    }
    format!(
        "NOT MEASURED: nothing forbids a consensus log here; whether it is fast enough, only a run \
         tells: bench-disk run --dir {}",
        environment.directory.display()
    )
}

fn file_system(page: &mut Page, environment: &Environment) {
    page.title("FILE SYSTEM");
    page.row("directory", &environment.directory.display().to_string());
    let because = environment.judged_because();
    if !because.is_empty() {
        page.row("judged at", &format!("{} ({because})", environment.judged.display()));
    }
    page.row("type", &environment.filesystem);
    page.remark(meaning::class(environment.class));
    if let Some(mount) = &environment.mount {
        page.row("mounted", &format!("{} at {}", mount.source, mount.point.display()));
        page.row("options", &mount.options.join(", "));
        for option in &mount.options {
            if let Some(text) = meaning::option(option) {
                page.remark(&format!("{option}: {text}"));
            }
        }
    }
    page.row("free", &format!("{:.1} GB", environment.free_bytes as f64 / 1e9));
    page.row("UUID", environment.fs_uuid.as_deref().unwrap_or("not told"));
}

fn devices(page: &mut Page, environment: &Environment) {
    page.title("DEVICES, FROM THE FILE SYSTEM DOWN");
    if environment.layers.is_empty() {
        page.row("source", &environment.device_name());
        page.remark("no block device of this host is known under this file system");
        return;
    }
    for (depth, layer) in environment.layers.iter().enumerate() {
        let line = format!("{}{layer}", "  ".repeat(depth));
        page.0.push_str(&wrap("  ", 4 + 2 * depth, &line));
    }
    for leaf in &environment.leaves {
        page.0.push('\n');
        disk(page, leaf);
    }
    let identity = Identity::of(environment);
    page.0.push('\n');
    let days = verdict::life(&identity).as_secs() / 86_400;
    if identity.unknown() {
        page.row("identity", "unknown");
        page.remark("a stored verdict cannot be tied to this device: every start measures");
    } else if identity.weak() {
        page.row("identity", "weak: no serial number and no worldwide name");
        page.remark(&format!("an unused verdict is trusted for {days} days [weak-identity]"));
    } else {
        page.row("identity", "certain");
        page.remark(&format!("an unused verdict is trusted for {days} days"));
    }
}

fn disk(page: &mut Page, leaf: &Leaf) {
    let gigabytes = leaf.sectors as f64 * 512.0 / 1e9;
    let model = match (&leaf.vendor, &leaf.model) {
        (Some(vendor), Some(model)) => format!("{vendor} {model}"),
        (None, Some(model)) => model.clone(),
        _ => "no model name".into(),
    };
    page.row("disk", &format!("{}, {model}, {gigabytes:.1} GB", leaf.name));
    let serial = leaf.serial.as_deref().or(leaf.wwid.as_deref());
    page.row("serial", serial.unwrap_or("none"));
    page.row("write cache", meaning::write_cache(leaf));
    if leaf.fua == Some(true) {
        page.remark("it can write past its cache (FUA), which saves flushes");
    }
    if let Some(scheduler) = &leaf.scheduler {
        page.row("scheduler", scheduler);
        page.remark(meaning::scheduler(scheduler));
    }
    if let Some(rotational) = leaf.rotational {
        page.row("rotates", if rotational { "yes, says the kernel" } else { "no" });
        if rotational && !leaf.really_rotates() {
            page.remark("virtual disks claim this on any back end: it is not believed");
        }
    }
    if let (Some(logical), Some(physical)) = (leaf.logical_block, leaf.physical_block) {
        page.row("blocks", &format!("{logical} B logical, {physical} B physical"));
        if physical > 4_096 {
            page.remark("writes below the physical size are read, changed and written back");
        }
    }
    if let Some(target) = leaf.writeback_target_us.filter(|&target| target > 0) {
        page.row("throttling", &format!("writeback is held back above {} ms", target / 1_000));
    }
}

fn limits(page: &mut Page, environment: &Environment) {
    page.title("LIMITS AND LOAD");
    if environment.limits.is_empty() {
        page.row("cgroups", "no I/O limit on these devices");
    }
    for limit in &environment.limits {
        let unit = if limit.kind.ends_with("bps") { "bytes" } else { "operations" };
        let what = if limit.kind.starts_with('w') { "write" } else { "read" };
        let text = format!("{} may {what} {} {unit} per second", limit.group, limit.value);
        page.row("cgroups", &text);
        page.remark("a slow result may be this limit, not the disk");
    }
    for share in &environment.shares {
        page.row("share", share);
    }
    if environment.pressure.is_empty() {
        page.row("pressure", "the kernel keeps no account of waiting for I/O");
    }
    for pressure in &environment.pressure {
        let text = format!(
            "{}: {:.1} % of the last minute somebody waited for I/O, {:.1} % everybody",
            pressure.of, pressure.some_avg60, pressure.full_avg60
        );
        page.row("pressure", &text);
    }
    page.row("kernel", &environment.kernel);
}
