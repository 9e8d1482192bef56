//! The state of one machine, and how it is switched.

use pod_safety_transport::{DeviceError, Identity, Machine, Power};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::parameters::{Parameters, ROOT, ambiguous_system, not_a_system};
use super::service::Service;
use super::{identity, lenient};

const SYSTEMS: &str = "/redfish/v1/Systems";

/// The type of a machine; a chassis also has a power state, and is no machine.
const TYPE: &str = "#ComputerSystem.";

/// The fields that are read. All may be missing: a missing one is unknown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct System {
    #[serde(rename = "@odata.id", deserialize_with = "lenient::text")]
    id: Option<String>,
    #[serde(rename = "@odata.type", deserialize_with = "lenient::text")]
    kind: Option<String>,
    #[serde(rename = "PowerState", deserialize_with = "lenient::text")]
    power_state: Option<String>,
    #[serde(rename = "UUID", deserialize_with = "lenient::text")]
    uuid: Option<String>,
    #[serde(rename = "SerialNumber", deserialize_with = "lenient::text")]
    serial: Option<String>,
    #[serde(rename = "Actions", deserialize_with = "lenient::object")]
    actions: Actions,
    #[serde(rename = "Links", deserialize_with = "lenient::object")]
    links: Links,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Actions {
    #[serde(rename = "#ComputerSystem.Reset", deserialize_with = "lenient::object")]
    reset: Option<Reset>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reset {
    #[serde(deserialize_with = "lenient::text")]
    target: Option<String>,
    #[serde(rename = "ResetType@Redfish.AllowableValues", deserialize_with = "lenient::texts")]
    allowed: Option<Vec<String>>,
    #[serde(rename = "@Redfish.ActionInfo", deserialize_with = "lenient::text")]
    info: Option<String>,
}

/// The resources of a system, or of a chassis.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Links {
    #[serde(rename = "Chassis", deserialize_with = "lenient::links")]
    chassis: Vec<String>,
    #[serde(rename = "ComputerSystems", deserialize_with = "lenient::links")]
    systems: Vec<String>,
}

/// The chassis of a system, which has a power state of its own.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Chassis {
    #[serde(rename = "PowerState", deserialize_with = "lenient::text")]
    power_state: Option<String>,
    #[serde(rename = "Links", deserialize_with = "lenient::object")]
    links: Links,
}

/// A system has one chassis, and a blade one more around it.
const MAX_CHASSIS: usize = 4;

/// Newer services list there which parameters an action accepts.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ActionInfo {
    #[serde(rename = "Parameters")]
    parameters: Vec<ActionParameter>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ActionParameter {
    #[serde(rename = "Name", deserialize_with = "lenient::text")]
    name: Option<String>,
    #[serde(rename = "AllowableValues", deserialize_with = "lenient::texts")]
    allowed: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Collection {
    #[serde(rename = "Members")]
    members: Json,
    /// Set if there is another page.
    #[serde(rename = "Members@odata.nextLink", deserialize_with = "lenient::text")]
    next: Option<String>,
    #[serde(rename = "Members@odata.count")]
    count: Json,
}

/// The path of the machine's system: the named one, or the only one.
pub(super) async fn resolve_path(service: &mut Service<'_>, parameters: &Parameters) -> Result<String, DeviceError> {
    if let Some(path) = &parameters.system {
        return Ok(path.clone());
    }
    let only = service.get::<Collection>(SYSTEMS).await?.single_member()?;
    service.own_path(&only).ok_or_else(|| DeviceError::Garbage {
        said: format!("the only system is {only:?}, which is no path of this service"),
    })
}

impl Collection {
    /// The path of the only member.
    pub(super) fn single_member(self) -> Result<String, DeviceError> {
        let paths = lenient::distinct(&self.members);
        let listed = self.members.as_array().map_or(0, Vec::len);
        // A page of several may have one member.
        let is_whole = self.next.is_none() && self.count.as_u64().is_none_or(|count| count == listed as u64);
        match paths.as_slice() {
            [only] if is_whole => Ok(only.clone()),
            _ => Err(ambiguous_system(&paths)),
        }
    }
}

impl System {
    pub(super) async fn read(service: &mut Service<'_>, path: &str) -> Result<Self, DeviceError> {
        let system: Self = service.get(path).await?;
        match &system.kind {
            Some(kind) if !kind.starts_with(TYPE) => Err(not_a_system(kind)),
            Some(_) | None => Ok(Self { id: Some(path.to_owned()), ..system }),
        }
    }

    /// Only `On` and `Off` are clear; changing, paused, unknown or missing is neither.
    pub(super) fn power(&self) -> Power {
        match self.power_state.as_deref() {
            Some("On") => Power::On,
            Some("Off") => Power::Off,
            Some(_) | None => Power::Unknown,
        }
    }

    pub(super) fn identity(&self, machine: &Machine) -> Identity {
        identity::compare(machine, self.uuid.as_deref(), self.serial.as_deref())
    }

    /// The state, for operators.
    pub(super) fn describe(&self) -> String {
        let or_not_reported = |text: &Option<String>| text.clone().unwrap_or_else(|| "not said".to_owned());
        let (id, state) = (or_not_reported(&self.id), or_not_reported(&self.power_state));
        format!(
            "{id}: PowerState {state}, UUID {}, SerialNumber {}",
            or_not_reported(&self.uuid),
            or_not_reported(&self.serial)
        )
    }

    /// Requests the power state `goal`.
    pub(super) async fn reset(&self, service: &mut Service<'_>, goal: Power) -> Result<(), DeviceError> {
        let how = match goal {
            Power::On => "On",
            Power::Off => "ForceOff",
            Power::Unknown | Power::Gone => return Ok(()),
        };
        let Some(reset) = &self.actions.reset else {
            return Err(DeviceError::Failed { said: "the system has no action ComputerSystem.Reset".to_owned() });
        };
        let target = reset.target.as_deref().and_then(|target| service.own_path(target));
        let Some(target) = target.filter(|target| target.starts_with(ROOT)) else {
            return Err(DeviceError::Garbage {
                said: "ComputerSystem.Reset has no target below /redfish/v1/".to_owned(),
            });
        };
        if let Some(allowed) = reset.allowed_types(service).await?
            && !allowed.iter().any(|word| word == how)
        {
            let said = format!("the system cannot {how}; it can {}", allowed.join(", "));
            return Err(DeviceError::Failed { said });
        }
        service.post(&target, &json!({ "ResetType": how })).await
    }
}

impl System {
    /// The system reports off and refuses to be switched off: checks that the chassis that hold only this system
    /// report off, too.
    pub(super) async fn confirm_off_by_chassis(
        &self,
        service: &mut Service<'_>,
        said: &str,
    ) -> Result<(), DeviceError> {
        let mut states = Vec::new();
        for link in self.links.chassis.iter().take(MAX_CHASSIS) {
            let Some(path) = service.own_path(link) else { continue };
            let Chassis { power_state, links } = service.get(&path).await?;
            if links.systems.len() <= 1 {
                states
                    .push((path, power_state.filter(|word| !word.is_empty()).unwrap_or_else(|| "nothing".to_owned())));
            }
        }
        let all_off = !states.is_empty() && states.iter().all(|(_, power)| power == "Off");
        if all_off {
            return Ok(());
        }
        let words: Vec<_> = states.iter().map(|(path, power)| format!("{path} says {power}")).collect();
        let chassis = if words.is_empty() { "no chassis says so".to_owned() } else { words.join(", ") };
        Err(DeviceError::Failed { said: format!("PowerState is Off, but ForceOff was refused ({said}) and {chassis}") })
    }
}

impl Reset {
    /// `None` if the service does not list them; then the request itself shows it.
    async fn allowed_types(&self, service: &mut Service<'_>) -> Result<Option<Vec<String>>, DeviceError> {
        let info = self.info.as_deref().and_then(|info| service.own_path(info));
        let (None, Some(path)) = (&self.allowed, info) else { return Ok(self.allowed.clone()) };
        match service.get::<ActionInfo>(&path).await {
            Ok(info) => {
                let mut all = info.parameters.into_iter();
                let reset = all.find(|parameter| parameter.name.as_deref() == Some("ResetType"));
                Ok(reset.and_then(|reset| reset.allowed))
            }
            // It does not exist, or cannot be decoded.
            Err(DeviceError::Failed { .. } | DeviceError::Garbage { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
