//! Verdicts of earlier runs. A mutant is judged again if its crate changed, or the crate of the tests that reach it. A change in a crate
//! that both only use is not detected: without the folder of `--work` all are judged again.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::build;
use crate::judge::Verdict::{self, Missed};
use crate::list::Mutant;

/// A package and its folder.
pub(crate) type Package = (&'static str, &'static str);

/// Verdicts on the mutants of one crate.
pub(crate) struct Cache {
    path: PathBuf,
    file: CacheFile,
    /// The packages whose tests run, in this order, with the state of their files.
    suites: Vec<(&'static str, u64)>,
}

/// The file.
#[derive(Default, Serialize, Deserialize)]
struct CacheFile {
    /// The state of the crate's files.
    state: u64,
    /// Whether the compiler accepts the mutant in its place.
    viable: BTreeMap<String, bool>,
    suites: BTreeMap<String, Suite>,
}

#[derive(Default, Serialize, Deserialize)]
struct Suite {
    state: u64,
    verdicts: BTreeMap<String, Verdict>,
}

impl Cache {
    /// Loads the verdicts on the mutants of `own` by its tests and those of `users`, for the current files or, with `all`, for any.
    ///
    /// # Errors
    /// If git or the disk fails, or the file was made by another version of this program.
    pub(crate) fn load(repository: &Path, work: &Path, own: Package, users: &[Package], all: bool) -> Result<Self> {
        let suites = std::iter::once(&own)
            .chain(users)
            .map(|(package, folder)| Ok((*package, state(repository, folder)?)))
            .collect::<Result<Vec<_>>>()?;
        let path = work.join("known").join(own.0).with_extension("json");
        let mut file: CacheFile = match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).with_context(|| path.display().to_string())?,
            Err(_) => CacheFile::default(),
        };
        let now = suites.first().map_or(0, |(_, state)| *state);
        if all {
            let is_known = |(package, _): &(&str, u64)| file.suites.contains_key(*package);
            return Ok(Self { suites: suites.into_iter().filter(is_known).collect(), path, file });
        }
        if file.state != now {
            file = CacheFile { state: now, ..CacheFile::default() };
        }
        file.suites.retain(|package, suite| suites.contains(&(package.as_str(), suite.state)));
        Ok(Self { path, file, suites })
    }

    /// Mutants that are known not to compile.
    pub(crate) fn refused(&self, mutants: &[&Mutant]) -> BTreeSet<usize> {
        let refused = mutants.iter().filter(|mutant| self.file.viable.get(&mutant.id) == Some(&false));
        refused.map(|mutant| mutant.number).collect()
    }

    /// Which of `mutants` compile.
    pub(crate) fn compiled(&mut self, mutants: &[&Mutant], viable: &BTreeSet<usize>) {
        let each = mutants.iter().map(|mutant| (mutant.id.clone(), viable.contains(&mutant.number)));
        self.file.viable.extend(each);
    }

    /// Whether the tests of `package` have not judged the mutant yet.
    pub(crate) fn needs_verdict(&self, package: &str, mutant: &Mutant) -> bool {
        let has_verdict = self.file.suites.get(package).is_some_and(|suite| suite.verdicts.contains_key(&mutant.id));
        !has_verdict && self.verdict(mutant).is_none()
    }

    /// Stores the verdicts by the tests of a package.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn add(&mut self, package: &str, verdicts: impl Iterator<Item = (String, Verdict)>) -> Result<()> {
        let suite = self.file.suites.entry(package.to_owned()).or_default();
        suite.state = self.suites.iter().find(|(name, _)| *name == package).map_or(0, |(_, state)| *state);
        suite.verdicts.extend(verdicts);
        std::fs::create_dir_all(self.path.parent().context("a file has a folder")?)?;
        // A run that is interrupted here leaves the old file.
        let beside = self.path.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec(&self.file)?)?;
        std::fs::rename(&beside, &self.path)?;
        Ok(())
    }

    /// `Some(None)`: it does not compile in its place. `None`: it is not judged yet.
    pub(crate) fn verdict(&self, mutant: &Mutant) -> Option<Option<Verdict>> {
        if !*self.file.viable.get(&mutant.id)? {
            return Some(None);
        }
        for (package, _) in &self.suites {
            match self.file.suites.get(*package)?.verdicts.get(&mutant.id)? {
                Missed => {}
                caught => return Some(Some(*caught)),
            }
        }
        Some(Some(Missed))
    }
}

/// A hash of the sources of a package and of the versions of its external dependencies.
fn state(repository: &Path, folder: &str) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    let sources = [format!("{folder}/src"), format!("{folder}/Cargo.toml"), "Cargo.lock".to_owned()];
    build::files(repository, &sources.each_ref().map(String::as_str))?.hash(&mut hasher);
    Ok(hasher.finish())
}
