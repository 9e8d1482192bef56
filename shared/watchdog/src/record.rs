//! The content of the Lease of a node's agent, as annotations.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The resourceVersion of the Lease.
pub type Version = Arc<str>;

/// The prefix of all annotations.
pub const PREFIX: &str = "watchdog.pod-safety.dev/";

/// The name of the Lease of a node's agent. The namespace also has Leases of other names, and a node may have any of
/// these names.
#[must_use]
pub fn lease_name(node: &str) -> String {
    format!("watchdog.{node}")
}

/// One attempt of one process of the agent to make its promise. Never reused: a random number of the process, and a
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// A random number, drawn when the process starts.
    pub process: u64,
    /// The number of its attempts.
    pub count: u32,
}

/// The state in a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The agent may open its device. It promises nothing.
    Unarmed,
    /// A grant: the promise holds.
    Armed,
    /// The controller revoked the last grant.
    Revoked,
    /// The agent withdrew its promise. Its device no longer runs.
    Disarmed,
}

/// The kind of a watchdog, which decides whether its promise is accepted.
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

/// What the device reports after its timeout was set.
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
    /// The state.
    pub state: State,
    /// The epoch of the writer.
    pub epoch: Epoch,
    /// The number of the grant within its epoch.
    pub round: u64,
    /// The boot that the promise is about.
    pub boot: Boot,
    /// The device, once it is open.
    pub device: Option<Arc<Device>>,
}

/// For how long an earlier boot of the machine ran on after its last pet, as its agent recorded it until the reset.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BootSurvival {
    /// The boot ID of that boot.
    pub boot: Arc<str>,
    /// From the last pet to the last record.
    pub outlived: Duration,
}

/// The result of an agent's check of the pods of its node. Pods that run normally are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodReport {
    /// The round that was sent after the check.
    pub checked_round: u64,
    /// UIDs of pods that have a cgroup, and neither a process nor a mount.
    pub terminated: Vec<String>,
    /// UIDs of pods that cannot terminate, and what prevents it.
    pub leftover: Vec<(String, String)>,
}

/// How many pods of each list are reported. A node has few of these.
const MAX_PODS: usize = 200;

/// The size of the list of pods that cannot terminate. Pods that have terminated come first. The agent decodes the
/// API server's answer with the whole Lease, in which one character can take six bytes.
const MAX_LEFTOVER_BYTES: usize = 16 << 10;

/// The size of the description of what keeps a pod.
const MAX_DESCRIPTION_BYTES: usize = 300;

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObservedLease {
    /// Its resourceVersion.
    pub version: Version,
    /// Its content. None if it cannot be decoded: it was not written by pod-safety-agent.
    pub record: Option<Record>,
}

/// An annotation that is missing or has an unknown value.
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

/// The names of a closed enum.
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
    const NAMES: &'static [(Self, &'static str)] =
        &[(Self::Unarmed, "Unarmed"), (Self::Armed, "Armed"), (Self::Revoked, "Revoked"), (Self::Disarmed, "Disarmed")];
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
    /// The record as annotations.
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

    /// Decodes annotations.
    ///
    /// # Errors
    /// An annotation is missing, or has a value that no agent writes.
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

    /// Whether this is the same grant, in whichever state.
    #[must_use]
    pub fn is_grant_of(&self, other: &Self) -> bool {
        (self.epoch, self.round, &self.boot) == (other.epoch, other.round, &other.boot)
    }
}

impl BootSurvival {
    /// The value as annotations.
    #[must_use]
    pub fn to_annotations(&self) -> [(String, String); 2] {
        let name = |name: &str| format!("{PREFIX}{name}");
        [
            (name("earlier-boot-id"), self.boot.to_string()),
            (name("earlier-boot-survived-milliseconds"), self.outlived.as_millis().to_string()),
        ]
    }

    /// Decodes annotations; none, if they do not contain it.
    #[must_use]
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let from = Annotations(annotations);
        let millis = from.parsed("earlier-boot-survived-milliseconds").ok()?;
        Some(Self { boot: from.text("earlier-boot-id").ok()?.into(), outlived: Duration::from_millis(millis) })
    }
}

impl PodReport {
    /// The report as annotations.
    #[must_use]
    pub fn to_annotations(&self) -> Vec<(String, String)> {
        let Self { checked_round: round, terminated: ended, leftover: stuck } = self;
        let ended: Vec<&str> = ended.iter().take(MAX_PODS).map(String::as_str).collect();
        let line = |(uid, description): &(String, String)| {
            let description = description.replace(char::is_control, " ");
            format!("{uid} {}\n", &description[..description.floor_char_boundary(MAX_DESCRIPTION_BYTES)])
        };
        let mut room = MAX_LEFTOVER_BYTES;
        let fits = |line: &String| {
            room = room.saturating_sub(line.len());
            room > 0
        };
        let stuck: String = stuck.iter().take(MAX_PODS).map(line).take_while(fits).collect();
        let all = [("pods-looked", round.to_string()), ("pods-ended", ended.join(" ")), ("pods-left", stuck)];
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
        let value = self.0.get(&format!("{PREFIX}{field}"));
        value.map(String::as_str).ok_or(InvalidAnnotation { field, value: None })
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
            pings_on_close: false,
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
    fn a_record_is_decoded_as_it_was_encoded() {
        assert_eq!(Record::from_annotations(&record().to_annotations()), Ok(record()));
        let bare = Record { device: None, state: State::Unarmed, ..record() };
        assert_eq!(Record::from_annotations(&bare.to_annotations()), Ok(bare));
    }

    #[test]
    fn the_survival_of_an_earlier_boot_is_decoded_beside_the_record() {
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
    fn attack_a_newline_in_a_process_name_adds_no_line_about_another_pod() {
        let leftover = vec![("uid-a".to_owned(), "process 7 (x\nuid-b ended)\u{1b}".to_owned() + &"é".repeat(300))];
        let all = PodReport { checked_round: 3, terminated: Vec::new(), leftover }.to_annotations();
        let [(name_of_round, round), (name, text)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((&**name_of_round, &**round), ("watchdog.pod-safety.dev/pods-looked", "3"));
        assert_eq!((&**name, text.lines().count()), ("watchdog.pod-safety.dev/pods-left", 1));
        assert!(text.starts_with("uid-a process 7 (x uid-b ended) é") && text.len() < 320, "{text}");
    }

    /// The API server answers with the whole Lease, and an agent that could not decode it got no grant any more.
    #[test]
    fn bug_a_report_about_many_pods_was_too_large_to_be_read() {
        let pods: Vec<_> = (0..400).map(|number| (format!("{number:036}"), "<".repeat(400))).collect();
        let ended = pods.iter().map(|(uid, _)| uid.clone()).collect();
        let all = PodReport { checked_round: 3, terminated: ended, leftover: pods }.to_annotations();
        let bytes: usize = all.iter().map(|(_, value)| value.len()).sum();
        assert!(bytes < 24 << 10, "{bytes}");
        let (_, leftover) = all.last().unwrap();
        assert!(leftover.ends_with("<\n") && leftover.lines().count() > 40, "whole lines: {leftover}");
        // As Kubernetes encodes JSON.
        assert!(leftover.len() + 5 * leftover.matches('<').count() < 128 << 10);
    }

    #[test]
    fn an_annotation_no_agent_writes_is_refused_with_its_field_and_a_remedy() {
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
            let message = Record::from_annotations(&all).unwrap_err().to_string();
            assert!(
                message.contains(field) && message.contains(value) && message.contains("delete the Lease"),
                "{message}"
            );
            all.remove(&format!("{PREFIX}{field}"));
            // Without a class there is no device.
            assert_eq!(Record::from_annotations(&all).is_err(), field != "class", "{field}");
        }
    }
}
