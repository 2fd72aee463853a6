//! Files that somebody names on the command line, read up to a limit: a device never ends, and its
//! length is told as zero.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// All bytes of a file or pipe, at most `most`. More are an error of the kind
/// [`io::ErrorKind::FileTooLarge`].
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let text = format!("more than {} KiB: this is another file", most >> 10);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare;
    use crate::powercut::Ledger;
    use crate::profile::Profile;
    use crate::sampler::recorded::Recorded;
    use crate::verdict::Verdict;

    #[test]
    fn a_file_may_be_as_long_as_the_limit_and_not_longer() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 1_024]).expect("written");
        assert_eq!(read(&path, 1_024).expect("fits"), [7; 1_024]);
        let error = read(&path, 1_023).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_device_without_an_end_is_an_error_for_every_reader() {
        let endless = Path::new("/dev/zero");
        assert!(Recorded::load(endless).is_err());
        assert!(Profile::named("/dev/zero").is_err());
        assert!(compare::load(endless).is_err());
        assert!(Ledger::load(endless).is_err());
        assert!(Verdict::load(endless).is_err());
    }
}
