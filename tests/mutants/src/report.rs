//! Tables of caught and missed mutants by crate, and whether the run passes.

use std::collections::BTreeMap;
use std::fmt::{Error, Write as _};

use crate::judge::Verdict::{self, ByTime, Caught, Missed};
use crate::list::Mutant;

/// The percentage of viable mutants that must be caught. Equivalent ones count as missed.
const FLOOR: usize = 95;

/// Code that a force delete, the out-of-service taint or the revocation of a volume depends on. Only equivalent mutants may be missed
/// here.
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

/// Each mutant with its verdict; `None`: it did not compile in its place.
pub(crate) type Judged<'a> = [(&'a Mutant, Option<Verdict>)];

fn missed<'a>(judged: &'a Judged<'_>) -> impl Iterator<Item = &'a Mutant> {
    judged.iter().filter(|(_, verdict)| *verdict == Some(Missed)).map(|(mutant, _)| *mutant)
}

fn row(judged: &Judged<'_>, of: impl Fn(&Mutant) -> bool) -> String {
    let count = |expected: Option<Verdict>| {
        judged.iter().filter(|(mutant, verdict)| of(mutant) && *verdict == expected).count()
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

/// Each missed mutant with the reason below it, if it is equivalent: `missed.txt`.
pub(crate) fn list_of_missed(judged: &Judged<'_>, equivalents: &BTreeMap<String, String>) -> Result<String, Error> {
    let mut text = String::new();
    for mutant in missed(judged) {
        let why = equivalents.get(&mutant.id).map_or("no test notices it", String::as_str);
        writeln!(text, "{}\n    {why}", mutant.name)?;
    }
    Ok(text)
}

/// Why the run fails, if it does.
pub(crate) fn complaints(judged: &Judged<'_>, equivalents: &BTreeMap<String, String>) -> Vec<String> {
    let equivalent = |mutant: &Mutant| equivalents.contains_key(&mutant.id);
    let caught = judged.iter().filter(|(_, verdict)| matches!(verdict, Some(Caught | ByTime)));
    let rotten = caught.map(|(mutant, _)| *mutant).filter(|mutant| equivalent(mutant));
    let open = missed(judged).filter(|mutant| PATHS.contains(&mutant.file.as_str()) && !equivalent(mutant));
    let mut complaints_found: Vec<String> =
        rotten.map(|it| format!("called equivalent, and a test notices it: {}", it.id)).collect();
    complaints_found.extend(open.map(|it| format!("missed where nothing may be: {}", it.id)));
    let (missed, viable) = (missed(judged).count(), judged.iter().filter(|(_, verdict)| verdict.is_some()).count());
    if missed * 100 > viable * (100 - FLOOR) {
        complaints_found.push(format!("{missed} of {viable} are missed: less than {FLOOR} % are caught"));
    }
    complaints_found
}
