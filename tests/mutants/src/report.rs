//! What was caught, crate by crate, what was missed, and whether that is enough.

use std::collections::BTreeMap;
use std::fmt::{Error, Write as _};

use crate::judge::Verdict::{self, ByTime, Caught, Missed};
use crate::list::Mutant;

/// Of all viable mutants so many in a hundred must be caught. Equivalent ones count as missed.
const FLOOR: usize = 95;

/// What a force delete, the out-of-service taint and the break of a volume pass through. Only equivalent mutants may be
/// missed here.
const PATHS: [&str; 20] = [
    "shared/proof/src/act.rs",
    "shared/proof/src/claim.rs",
    "shared/proof/src/evidence.rs",
    "shared/proof/src/facts.rs",
    "shared/proof/src/guard.rs",
    "shared/proof/src/holds.rs",
    "shared/proof/src/judge.rs",
    "shared/proof/src/refusal.rs",
    "shared/proof/src/shape.rs",
    "shared/proof/src/lease_age.rs",
    "shared/proof/src/volume.rs",
    "shared/src/authority/act.rs",
    "shared/src/authority/delete.rs",
    "shared/src/authority/verify.rs",
    "shared/src/authority/verify/volumes.rs",
    "shared/src/authority/volume.rs",
    "shared/fence/src/evidence.rs",
    "shared/fence/src/taint.rs",
    "shared/fence/src/quorum_read.rs",
    "shared/leader/src/send.rs",
];

/// Each mutant with its verdict; without one it did not compile in its place.
pub(crate) type Judged<'a> = [(&'a Mutant, Option<Verdict>)];

fn missed<'a>(judged: &'a Judged<'_>) -> impl Iterator<Item = &'a Mutant> {
    judged.iter().filter(|(_, verdict)| *verdict == Some(Missed)).map(|(mutant, _)| *mutant)
}

fn row(judged: &Judged<'_>, of: impl Fn(&Mutant) -> bool) -> String {
    let count = |wanted: Option<Verdict>| {
        judged.iter().filter(|(mutant, verdict)| of(mutant) && *verdict == wanted).count()
    };
    let (unviable, caught, by_time, missed) =
        (count(None), count(Some(Caught)), count(Some(ByTime)), count(Some(Missed)));
    let viable = caught + by_time + missed;
    let tenths = ((caught + by_time) * 1000).checked_div(viable).unwrap_or(1000);
    let (whole, tenth) = (tenths / 10, tenths % 10);
    format!("{} | {unviable} | {caught} | {by_time} | {missed} | {whole}.{tenth} %", viable + unviable)
}

/// The folder of its crate.
fn crate_of(mutant: &Mutant) -> &str {
    mutant.file.split_once("/src/").map_or(&mutant.file, |(folder, _)| folder)
}

/// The table of `tests/records/mutants.md`.
pub(crate) fn table(judged: &Judged<'_>) -> Result<String, Error> {
    let mut text = String::new();
    writeln!(text, "| crate | mutants | unviable | caught | by time | missed | caught of viable |")?;
    writeln!(text, "|---|--:|--:|--:|--:|--:|--:|")?;
    let mut crates: Vec<&str> = judged.iter().map(|(mutant, _)| crate_of(mutant)).collect();
    crates.dedup();
    for name in crates {
        writeln!(text, "| `{name}` | {} |", row(judged, |mutant| crate_of(mutant) == name))?;
    }
    let on_path = |mutant: &Mutant| PATHS.contains(&mutant.file.as_str());
    writeln!(text, "| of these, where none may be missed | {} |", row(judged, on_path))?;
    writeln!(text, "| all | {} |", row(judged, |_| true))?;
    Ok(text)
}

/// Each mutant that was missed, and below it why that may be so: `missed.txt`.
pub(crate) fn list_of_missed(
    judged: &Judged<'_>,
    equivalents: &BTreeMap<String, String>,
) -> Result<String, Error> {
    let mut text = String::new();
    for mutant in missed(judged) {
        let why = equivalents.get(&mutant.id).map_or("no test notices it", String::as_str);
        writeln!(text, "{}\n    {why}", mutant.name)?;
    }
    Ok(text)
}

/// What makes the run fail.
pub(crate) fn complaints(judged: &Judged<'_>, equivalents: &BTreeMap<String, String>) -> Vec<String> {
    let equivalent = |mutant: &Mutant| equivalents.contains_key(&mutant.id);
    let caught = judged.iter().filter(|(_, verdict)| matches!(verdict, Some(Caught | ByTime)));
    let rotten = caught.map(|(mutant, _)| *mutant).filter(|mutant| equivalent(mutant));
    let open = missed(judged).filter(|mutant| PATHS.contains(&mutant.file.as_str()) && !equivalent(mutant));
    let mut found: Vec<String> =
        rotten.map(|it| format!("called equivalent, and a test notices it: {}", it.id)).collect();
    found.extend(open.map(|it| format!("missed where nothing may be: {}", it.id)));
    let (missed, viable) =
        (missed(judged).count(), judged.iter().filter(|(_, verdict)| verdict.is_some()).count());
    if missed * 100 > viable * (100 - FLOOR) {
        found.push(format!("{missed} of {viable} are missed: less than {FLOOR} % are caught"));
    }
    found
}
