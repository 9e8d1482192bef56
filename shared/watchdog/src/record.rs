//! What stands in the Lease of a node's agent, as annotations.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The resourceVersion of the Lease.
pub type Version = Arc<str>;

/// All annotations begin so.
pub const PREFIX: &str = "watchdog.pod-safety.dev/";

/// The name of the Lease of a node's agent. Leases of other names are in the same namespace, and nodes may have any of those.
#[must_use]
pub fn lease_name(node: &str) -> String {
    format!("watchdog.{node}")
}

/// One attempt of one process of the agent to make its promise. Never used twice: a random number of the process, and a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// Drawn when the process starts.
    pub process: u64,
    /// Its attempts.
    pub count: u32,
}

/// What a Lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The agent may open its device. It promises nothing.
    Unarmed,
    /// A grant: the promise stands.
    Armed,
    /// The controller took the last grant back.
    Revoked,
    /// The agent took its promise back. Its device no longer runs.
    Disarmed,
}

/// The kind of a watchdog, which decides what its promise is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A circuit of a machine without a hypervisor.
    Hardware,
    /// A timer of the kernel (softdog), on such a machine.
    Software,
    /// Any watchdog in a virtual machine: it stands still while the machine is paused.
    Virtual,
    /// A virtual machine of a public cloud: for how long it may be paused is not known.
    Cloud,
}

/// What the device says of itself, read back after it was set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// Its kind.
    pub class: Class,
    /// The driver's name for it.
    pub identity: Arc<str>,
    /// Its firmware version.
    pub firmware: u32,
    /// The release of the kernel.
    pub kernel: Arc<str>,
    /// W.
    pub timeout: Duration,
    /// Whether closing it cannot stop it.
    pub nowayout: bool,
    /// Whether closing it pets it.
    pub pings_on_close: bool,
}

/// One boot of one Node object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Boot {
    /// The UID of the Node.
    pub node: Arc<str>,
    /// The boot ID.
    pub id: Arc<str>,
}

/// The content of the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// What it says.
    pub state: State,
    /// Who says it.
    pub epoch: Epoch,
    /// The number of the grant within its epoch.
    pub round: u64,
    /// About which boot.
    pub boot: Boot,
    /// The device, once it is open.
    pub device: Option<Arc<Device>>,
}

/// For how long an earlier boot of the machine outlived its last pet, as its agent wrote it down until the reset.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BootSurvival {
    /// The boot ID of that boot.
    pub boot: Arc<str>,
    /// From the last pet to the last sign of it.
    pub outlived: Duration,
}

/// What an agent found of the pods of its node when it looked. Pods that simply run are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodReport {
    /// The round that was sent after the look.
    pub checked_round: u64,
    /// UIDs of pods that have a cgroup, and neither a process nor a mount.
    pub terminated: Vec<String>,
    /// UIDs of pods that cannot end, and what keeps them.
    pub leftover: Vec<(String, String)>,
}

/// So many of each are named. A node has few of these.
const MAX_PODS: usize = 200;

/// So many bytes the list of pods that cannot end has: pods that have ended come first, and an answer of the API server with the Lease
/// in it, in which a character can take six bytes, is read as a whole.
const MAX_LEFTOVER_BYTES: usize = 16 << 10;

/// What keeps a pod is told in so many bytes.
const MAX_DESCRIPTION_BYTES: usize = 300;

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObservedLease {
    /// Its resourceVersion.
    pub version: Version,
    /// Its content. None if it cannot be read: it was not written by an agent of ours.
    pub record: Option<Record>,
}

/// An annotation that is missing or says nothing that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAnnotation {
    field: &'static str,
    value: Option<String>,
}

impl fmt::Display for InvalidAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field;
        match &self.value {
            Some(value) => write!(f, "{PREFIX}{field} is {value:?}, which no agent writes")?,
            None => write!(f, "{PREFIX}{field} is missing")?,
        }
        f.write_str(": delete the Lease, and the agent of the node writes it anew")
    }
}

impl std::error::Error for InvalidAnnotation {}

/// Names of a closed enum.
trait Named: Copy + PartialEq + Sized + 'static {
    const NAMES: &'static [(Self, &'static str)];
    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| name)
    }
    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, one)| *one == name).map(|(one, _)| *one)
    }
}

impl Named for State {
    const NAMES: &'static [(Self, &'static str)] = &[
        (Self::Unarmed, "Unarmed"),
        (Self::Armed, "Armed"),
        (Self::Revoked, "Revoked"),
        (Self::Disarmed, "Disarmed"),
    ];
}

impl Named for Class {
    const NAMES: &'static [(Self, &'static str)] = &[
        (Self::Hardware, "Hardware"),
        (Self::Software, "Software"),
        (Self::Virtual, "Virtual"),
        (Self::Cloud, "Cloud"),
    ];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Class {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        Self::from_name(name).ok_or(())
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.process, self.count)
    }
}

impl FromStr for Epoch {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (process, count) = text.split_once('-').ok_or(())?;
        let process = u64::from_str_radix(process, 16).map_err(drop)?;
        Ok(Self { process, count: count.parse().map_err(drop)? })
    }
}

impl Record {
    /// As annotations.
    #[must_use]
    pub fn to_annotations(&self) -> BTreeMap<String, String> {
        let mut all = vec![
            ("state", self.state.name().to_owned()),
            ("epoch", self.epoch.to_string()),
            ("round", self.round.to_string()),
            ("node-uid", self.boot.node.to_string()),
            ("boot-id", self.boot.id.to_string()),
        ];
        if let Some(device) = &self.device {
            all.extend([
                ("class", device.class.name().to_owned()),
                ("identity", device.identity.to_string()),
                ("firmware", device.firmware.to_string()),
                ("kernel", device.kernel.to_string()),
                ("timeout-seconds", device.timeout.as_secs().to_string()),
                ("nowayout", device.nowayout.to_string()),
                ("pings-on-close", device.pings_on_close.to_string()),
            ]);
        }
        all.into_iter().map(|(name, value)| (format!("{PREFIX}{name}"), value)).collect()
    }

    /// Back from annotations.
    ///
    /// # Errors
    /// If one is missing, or says nothing that an agent would write.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, InvalidAnnotation> {
        let from = Annotations(annotations);
        let device = if from.has("class") {
            Some(Arc::new(Device {
                class: from.named("class")?,
                identity: from.text("identity")?.into(),
                firmware: from.parsed("firmware")?,
                kernel: from.text("kernel")?.into(),
                timeout: Duration::from_secs(u64::from(from.parsed::<u32>("timeout-seconds")?)),
                nowayout: from.parsed("nowayout")?,
                pings_on_close: from.parsed("pings-on-close")?,
            }))
        } else {
            None
        };
        let boot = Boot { node: from.text("node-uid")?.into(), id: from.text("boot-id")?.into() };
        Ok(Self {
            state: from.named("state")?,
            epoch: from.parsed("epoch")?,
            round: from.parsed("round")?,
            boot,
            device,
        })
    }

    /// Whether this is the same grant, whatever its state says.
    #[must_use]
    pub fn is_grant_of(&self, other: &Self) -> bool {
        (self.epoch, self.round, &self.boot) == (other.epoch, other.round, &other.boot)
    }
}

impl BootSurvival {
    /// As annotations.
    #[must_use]
    pub fn to_annotations(&self) -> [(String, String); 2] {
        let name = |name: &str| format!("{PREFIX}{name}");
        [
            (name("earlier-boot-id"), self.boot.to_string()),
            (name("earlier-boot-survived-milliseconds"), self.outlived.as_millis().to_string()),
        ]
    }

    /// Back from annotations; none, if they do not have it.
    #[must_use]
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let from = Annotations(annotations);
        let millis = from.parsed("earlier-boot-survived-milliseconds").ok()?;
        Some(Self {
            boot: from.text("earlier-boot-id").ok()?.into(),
            outlived: Duration::from_millis(millis),
        })
    }
}

impl PodReport {
    /// As annotations.
    #[must_use]
    pub fn to_annotations(&self) -> Vec<(String, String)> {
        let Self { checked_round: looked, terminated: ended, leftover: left } = self;
        let ended: Vec<&str> = ended.iter().take(MAX_PODS).map(String::as_str).collect();
        let line = |(uid, words): &(String, String)| {
            let words = words.replace(char::is_control, " ");
            format!("{uid} {}\n", &words[..words.floor_char_boundary(MAX_DESCRIPTION_BYTES)])
        };
        let mut room = MAX_LEFTOVER_BYTES;
        let fits = |line: &String| {
            room = room.saturating_sub(line.len());
            room > 0
        };
        let left: String = left.iter().take(MAX_PODS).map(line).take_while(fits).collect();
        let all = [("pods-looked", looked.to_string()), ("pods-ended", ended.join(" ")), ("pods-left", left)];
        let entries = all.into_iter().filter(|(_, value)| !value.is_empty());
        entries.map(|(name, value)| (format!("{PREFIX}{name}"), value)).collect()
    }
}

struct Annotations<'a>(&'a BTreeMap<String, String>);

impl<'a> Annotations<'a> {
    fn has(&self, field: &str) -> bool {
        self.0.contains_key(&format!("{PREFIX}{field}"))
    }

    fn text(&self, field: &'static str) -> Result<&'a str, InvalidAnnotation> {
        let found = self.0.get(&format!("{PREFIX}{field}"));
        found.map(String::as_str).ok_or(InvalidAnnotation { field, value: None })
    }

    fn parsed<T: FromStr>(&self, field: &'static str) -> Result<T, InvalidAnnotation> {
        let text = self.text(field)?;
        text.parse().map_err(|_unknown| InvalidAnnotation { field, value: Some(text.to_owned()) })
    }

    fn named<T: Named>(&self, field: &'static str) -> Result<T, InvalidAnnotation> {
        let text = self.text(field)?;
        T::from_name(text).ok_or_else(|| InvalidAnnotation { field, value: Some(text.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let device = Device {
            class: Class::Hardware,
            identity: "iTCO_wdt".into(),
            firmware: 6,
            kernel: "6.1.0-28-amd64".into(),
            timeout: Duration::from_secs(10),
            nowayout: true,
            pings_on_close: true,
        };
        Record {
            state: State::Armed,
            epoch: Epoch { process: 0xdead_beef, count: 3 },
            round: 17,
            boot: Boot { node: "7a1c".into(), id: "c3d0".into() },
            device: Some(Arc::new(device)),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Record::from_annotations(&record().to_annotations()), Ok(record()));
        let bare = Record { device: None, state: State::Unarmed, ..record() };
        assert_eq!(Record::from_annotations(&bare.to_annotations()), Ok(bare));
    }

    #[test]
    fn what_an_earlier_boot_survived_is_read_beside_the_record() {
        let survived = BootSurvival { boot: "b2a1".into(), outlived: Duration::from_millis(9_750) };
        let mut all = record().to_annotations();
        assert_eq!(BootSurvival::from_annotations(&all), None);
        all.extend(survived.to_annotations());
        assert_eq!(
            (BootSurvival::from_annotations(&all), Record::from_annotations(&all)),
            (Some(survived), Ok(record()))
        );
    }

    #[test]
    fn attack_a_process_with_a_line_in_its_name_says_nothing_about_another_pod() {
        let left =
            vec![("uid-a".to_owned(), "process 7 (x\nuid-b ended)\u{1b}".to_owned() + &"é".repeat(300))];
        let all = PodReport { checked_round: 3, terminated: Vec::new(), leftover: left }.to_annotations();
        let [(looked, round), (name, text)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((&**looked, &**round), ("watchdog.pod-safety.dev/pods-looked", "3"));
        assert_eq!((&**name, text.lines().count()), ("watchdog.pod-safety.dev/pods-left", 1));
        assert!(text.starts_with("uid-a process 7 (x uid-b ended) é") && text.len() < 320, "{text}");
    }

    /// The API server answers with the whole Lease, and an agent that could not read that got no grant any more.
    #[test]
    fn bug_a_report_about_many_pods_is_read_again() {
        let pods: Vec<_> = (0..400).map(|number| (format!("{number:036}"), "<".repeat(400))).collect();
        let ended = pods.iter().map(|(uid, _)| uid.clone()).collect();
        let all = PodReport { checked_round: 3, terminated: ended, leftover: pods }.to_annotations();
        let bytes: usize = all.iter().map(|(_, value)| value.len()).sum();
        assert!(bytes < 24 << 10, "{bytes}");
        let (_, left) = all.last().unwrap();
        assert!(left.ends_with("<\n") && left.lines().count() > 40, "whole lines: {left}");
        // As Kubernetes writes JSON.
        assert!(left.len() + 5 * left.matches('<').count() < 128 << 10);
    }

    #[test]
    fn what_no_agent_writes_is_refused_with_its_field_and_the_way_out() {
        for (field, value) in [
            ("state", "Granted"),
            ("epoch", "17"),
            ("round", "-1"),
            ("class", "Mainframe"),
            ("timeout-seconds", "99999999999"),
            ("nowayout", "yes"),
        ] {
            let mut all = record().to_annotations();
            all.insert(format!("{PREFIX}{field}"), value.to_owned());
            let said = Record::from_annotations(&all).unwrap_err().to_string();
            assert!(
                said.contains(field) && said.contains(value) && said.contains("delete the Lease"),
                "{said}"
            );
            all.remove(&format!("{PREFIX}{field}"));
            // Without a class there is no device.
            assert_eq!(Record::from_annotations(&all).is_err(), field != "class", "{field}");
        }
    }
}
