//! For how long a machine that is to be reset outlives its last pet. The next boot reads it, and a drill compares it
//! with the timeout.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pod_safety_watchdog::record::BootSurvival;

/// A file that outlives the boot, with a line for each record: if the reset truncates a line, the one before it is
/// complete.
#[derive(Debug)]
pub struct SurvivalLog {
    path: PathBuf,
    file: Option<File>,
}

impl SurvivalLog {
    /// The file in this folder, which is created.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { path: folder.join("survived"), file: None })
    }

    /// Records that this boot still runs, this long after its last pet.
    ///
    /// # Errors
    /// The record is not on the disk.
    pub fn record(&mut self, boot: &str, since_pet: Duration) -> io::Result<()> {
        if self.file.is_none() {
            let begun = OpenOptions::new().create(true).write(true).truncate(true).open(&self.path)?;
            self.file = Some(begun);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        writeln!(file, "{boot} {}", since_pet.as_millis())?;
        file.sync_data()
    }

    /// The last record of an earlier boot.
    #[must_use]
    pub fn read_earlier_boot(&self, boot: &str) -> Option<BootSurvival> {
        let text = fs::read_to_string(&self.path).ok()?;
        let complete_lines = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let (earlier_boot, millis) = complete_lines.lines().next_back()?.split_once(' ')?;
        let survived =
            BootSurvival { boot: earlier_boot.into(), outlived: Duration::from_millis(millis.parse().ok()?) };
        (earlier_boot != boot).then_some(survived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_boot_reads_the_last_complete_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut survival = SurvivalLog::new(folder.path()).unwrap();
        assert_eq!(survival.read_earlier_boot("b"), None);
        for millis in [250, 500, 9_750] {
            survival.record("a", Duration::from_millis(millis)).unwrap();
        }
        // The reset came while this line was written.
        OpenOptions::new().append(true).open(&survival.path).unwrap().write_all(b"a 99").unwrap();
        let survived = BootSurvival { boot: "a".into(), outlived: Duration::from_millis(9_750) };
        assert_eq!(survival.read_earlier_boot("b"), Some(survived));
        assert_eq!(survival.read_earlier_boot("a"), None, "of this boot there is nothing to say yet");
        // Each boot truncates the file.
        let mut later = SurvivalLog::new(folder.path()).unwrap();
        later.record("b", Duration::from_millis(1)).unwrap();
        assert_eq!(later.read_earlier_boot("c").unwrap().outlived, Duration::from_millis(1));
    }
}
