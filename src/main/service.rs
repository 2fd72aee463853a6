//! What the service manager and the container runtime are told (`operations.md` 2).

use std::io::Write;
use std::os::unix::net::UnixDatagram;

/// File in which Kubernetes looks for a container's last words.
const TERMINATION_LOG: &str = "/dev/termination-log";
/// Kubernetes cuts a termination message at this length.
const TERMINATION_MAX_BYTES: usize = 4096;

/// Sends lines such as `READY=1` to the service manager, if there is one (`sd_notify(3)`).
pub(crate) fn notify(lines: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let path = std::path::PathBuf::from(path);
    let sent = UnixDatagram::unbound().and_then(|socket| {
        use std::os::unix::ffi::OsStrExt;
        match path.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) => {
                use std::os::linux::net::SocketAddrExt;
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                socket.send_to_addr(lines.as_bytes(), &address)
            }
            None => socket.send_to(lines.as_bytes(), &path),
        }
    });
    if let Err(error) = sent {
        tracing::warn!(%error, socket = %path.display(), "cannot notify the service manager");
    }
}

/// Leaves the reason of a refused start where an operator looks first: the status text of the
/// service and the termination log of the container.
pub(crate) fn refused(reason: &str) {
    let first = reason.lines().next().unwrap_or_default();
    notify(&format!("STATUS={first}"));
    let Ok(mut file) = std::fs::OpenOptions::new().write(true).open(TERMINATION_LOG) else {
        return;
    };
    let mut cut = reason.len().min(TERMINATION_MAX_BYTES);
    while !reason.is_char_boundary(cut) {
        cut -= 1;
    }
    // Best effort: the process is ending, and the text was printed as well.
    let _ = file.write_all(&reason.as_bytes()[..cut]);
}
