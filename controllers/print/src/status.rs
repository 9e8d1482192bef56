//! The whole cluster on one screen, for operators.

use std::fmt::Write as _;

use pod_safety_explain::{
    Blocked, Overall, Overview, Paused, Running, Trouble, Zone, elapsed, format_duration, pluralize,
};

use crate::{Paint, Tone};

/// The first line: the leader and its mode.
fn header(running: &Running, server: &str, wall: jiff::Timestamp) -> String {
    let mut parts = Vec::new();
    if !server.is_empty() {
        parts.push(format!("Kubernetes {server}"));
    }
    parts.push(running.mode.map_or("mode unknown".to_owned(), |mode| format!("mode {}", mode.name())));
    let leader = match (&running.leader, running.lease_unread, running.stale) {
        (Some(leader), ..) => {
            let node = running.leader_node.as_deref().map_or(String::new(), |node| format!(" on {node}"));
            format!("leader {leader}{node}, {}", pluralize(running.standbys, "standby"))
        }
        (None, true, _) => "leader unknown".to_owned(),
        (None, false, Some(at)) => format!("no leader for {}", format_duration(elapsed(at, wall))),
        (None, false, None) => "no leader".to_owned(),
    };
    parts.push(leader);
    parts.join("   ")
}

/// The screen.
#[must_use]
pub fn page(overview: &Overview, running: &Running, server: &str, wall: jiff::Timestamp, paint: Paint) -> String {
    let (tone, seen) = identity_line(overview);
    let promise = paint.with_mark(tone, &format!("Pods with a stable name: {seen}"));
    let mut text = format!("{}\n{promise}", paint.wrap(&header(running, server, wall), 2));
    if !overview.zones.is_empty() {
        text.push('\n');
        text.push_str(&zones(&overview.zones, paint));
    }
    for (title, blocks) in [("NEEDS A PERSON", true), ("TO KNOW", false)] {
        let of: Vec<&Trouble> = overview.troubles.iter().filter(|one| one.blocks == blocks).collect();
        if !of.is_empty() {
            let title = paint.tone(Tone::Plain, title);
            let _infallible = write!(text, "\n{title}\n{}", troubles(&of, paint));
        }
    }
    if !overview.blocked.is_empty() {
        let _infallible =
            write!(text, "\n{}\n{}", paint.tone(Tone::Plain, "BLOCKED PODS"), blocked(&overview.blocked, paint));
    }
    if overview.wait_for_fencing > 0 {
        let pods = pluralize(overview.wait_for_fencing, "pod");
        let unlisted = format!("Not listed: {pods} to be released by fencing, without a person. To see which:");
        let _infallible = write!(text, "\n{}", paint.with_mark(Tone::Attention, &unlisted));
        text.push_str(&paint.command("pod-safety explain node NODE"));
    }
    if !overview.paused.is_empty() {
        let _infallible =
            write!(text, "\n{}\n{}", paint.tone(Tone::Plain, "PAUSED"), paused(&overview.paused, wall, paint));
    }
    let waits = !overview.blocked.is_empty() || overview.troubles.iter().any(|one| one.blocks);
    // The troubles are enough, but they do not show that the rest is well.
    if !waits && (overview.troubles.is_empty() || overview.verdict() != Overall::Clear) {
        let (tone, verdict) = match overview.verdict() {
            Overall::Clear => (Tone::Good, "Nothing needs a person"),
            Overall::Unknown | Overall::Blocked => (
                Tone::Attention,
                "It is not known whether something needs a person, because not everything could be read",
            ),
        };
        text.push('\n');
        text.push_str(&paint.with_mark(tone, verdict));
    }
    if let Some(day) = &overview.last_day {
        let _infallible = writeln!(text, "\n{}", paint.wrap(&day.describe(), 2));
    }
    if !overview.missing.is_empty() {
        text.push('\n');
    }
    for missing in &overview.missing {
        text.push_str(&paint.with_mark(Tone::Attention, missing));
    }
    text
}

/// Whether every identity has at most one pod, as far as it was read.
fn identity_line(overview: &Overview) -> (Tone, String) {
    match (overview.identities, overview.wait_for_proof) {
        (Some(identities), Some(waiting)) => {
            let tone = if waiting == 0 { Tone::Good } else { Tone::Attention };
            let waits = match waiting {
                0 => "none waits for proof".to_owned(),
                1 => "1 waits for proof that the old pod stopped".to_owned(),
                _ => format!("{waiting} wait for proof that the old pods stopped"),
            };
            (tone, format!("{identities}, {waits}"))
        }
        (None, _) | (_, None) => {
            (Tone::Attention, "not checked, because pods, nodes or Leases could not be read".to_owned())
        }
    }
}

fn zones(zones: &[Zone], paint: Paint) -> String {
    let row = |zone: &Zone| {
        let tone = if zone.ready == zone.nodes { Tone::Plain } else { Tone::Attention };
        let disrupted = zone.brake.map_or("no".to_owned(), |reason| format!("yes ({reason})"));
        (tone, vec![zone.zone.clone(), format!("{}/{}", zone.ready, zone.nodes), zone.lost.to_string(), disrupted])
    };
    let rows: Vec<_> = zones.iter().map(row).collect();
    paint.table(&["ZONE", "READY", "LOST", "DISRUPTED"], &rows)
}

fn troubles(troubles: &[&Trouble], paint: Paint) -> String {
    let mut text = String::new();
    for trouble in troubles {
        let tone = if trouble.blocks { Tone::Bad } else { Tone::Attention };
        text.push_str(&paint.with_mark(tone, &format!("{}   {}", trouble.object, trouble.message)));
        text.push_str(&paint.command(&trouble.command));
    }
    text
}

/// What is not fenced because it is paused.
fn paused(paused: &[Paused], wall: jiff::Timestamp, paint: Paint) -> String {
    let mut text = String::new();
    for one in paused {
        text.push_str(&paint.with_mark(Tone::Attention, &format!("{}   {}", one.object, one.describe(wall))));
        text.push_str(&paint.command(&one.command));
    }
    text
}

fn blocked(blocked: &[Blocked], paint: Paint) -> String {
    let row = |one: &Blocked| {
        let Blocked { namespace, pod, node, since: _, age, reason: _, needs } = one;
        let node = node.clone().unwrap_or_else(|| "-".to_owned());
        (Tone::Plain, vec![namespace.clone(), pod.clone(), node, age.clone(), needs.clone()])
    };
    let rows: Vec<_> = blocked.iter().map(row).collect();
    paint.table(&["NAMESPACE", "POD", "NODE", "SINCE", "NEEDS"], &rows)
}
