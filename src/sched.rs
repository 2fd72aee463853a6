//! What the kernel's scheduler is told about a thread.
//!
//! When more threads want to run than there are cores, a thread that wakes waits for the one that
//! runs, about 3 ms on two cores (the fair scheduler's slice), and a put wakes several one after
//! another. Threads on the way of a write therefore ask for a short slice: they run less at a time,
//! but at once (sched(7), `sched_setattr(2)`; honoured by Linux 6.12 and newer, without effect
//! before). Threads that work through much data for one caller are made nicer instead. Neither
//! needs a privilege.

/// Slice of prompt threads in nanoseconds: the shortest that the kernel accepts. A turn of such a
/// thread takes some ten microseconds.
const PROMPT_SLICE_NS: u64 = 100_000;
/// What is added to the niceness of background threads: each step is a tenth of the processor's
/// time, so they get about a tenth of what others get, and all of what nobody else wants.
const BACKGROUND_NICE: i32 = 10;
/// The highest niceness there is.
const NICE_MAX: i32 = 19;

/// How a thread should be scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Somebody waits for every turn of it, and turns are short.
    Prompt,
    /// As the process was started.
    Ordinary,
    /// It works through much data.
    Background,
}

/// Asks for the calling thread. A refusal (an old kernel, a sandbox) changes nothing but speed, so
/// it is only logged.
pub fn apply(class: Class) {
    let asked = match class {
        Class::Prompt => adjust(|attr| attr.sched_runtime = PROMPT_SLICE_NS),
        Class::Ordinary => Ok(()),
        Class::Background => adjust(|attr| {
            attr.sched_nice = (attr.sched_nice + BACKGROUND_NICE).min(NICE_MAX);
            // A thread begins with what its starter asked for; 0 is the kernel's own slice.
            attr.sched_runtime = 0;
        }),
    };
    if let Err(error) = asked {
        tracing::debug!(?class, %error, "the scheduler was not told about this thread");
    }
}

fn adjust(change: impl FnOnce(&mut libc::sched_attr)) -> std::io::Result<()> {
    let mut attr = get()?;
    // A real-time policy was chosen by somebody who knows better.
    if attr.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    change(&mut attr);
    set(&attr)
}

#[expect(unsafe_code, reason = "sched_getattr has no safe wrapper")]
fn get() -> std::io::Result<libc::sched_attr> {
    let mut attr = libc::sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the pointer is to a structure of the size that is given, and the kernel writes no
    // more than that; 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if done == 0 { Ok(attr) } else { Err(std::io::Error::last_os_error()) }
}

#[expect(unsafe_code, reason = "sched_setattr has no safe wrapper")]
fn set(attr: &libc::sched_attr) -> std::io::Result<()> {
    // SAFETY: `size` in the structure is what the kernel wrote there, no more than it reads; 0 is
    // the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attr, 0) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Niceness and slice of a thread that asked for this, started by one that asked for `by`.
    #[expect(clippy::disallowed_methods, reason = "the test is the owner of its threads")]
    fn of(class: Class, by: Class) -> (i32, u64) {
        let starter = std::thread::spawn(move || {
            apply(by);
            let asked = std::thread::spawn(move || {
                apply(class);
                get().expect("a thread may look at itself")
            });
            asked.join().expect("thread")
        });
        let attr = starter.join().expect("thread");
        (attr.sched_nice, attr.sched_runtime)
    }

    #[test]
    fn the_kernel_knows_what_a_thread_asked_for() {
        let (nice, slice_ns) = of(Class::Ordinary, Class::Ordinary);
        let background = of(Class::Background, Class::Prompt);
        assert_eq!(background, ((nice + BACKGROUND_NICE).min(NICE_MAX), slice_ns));
        let (prompt_nice, prompt_ns) = of(Class::Prompt, Class::Ordinary);
        assert_eq!(prompt_nice, nice);
        // Older kernels give no slice back.
        if slice_ns > 0 {
            assert_eq!(prompt_ns, PROMPT_SLICE_NS);
        }
    }
}
