//! What a service says of one machine, and how it is told to switch it.

use std::collections::BTreeMap;

use pod_safety_transport::{DeviceError, Identity, Machine, Power};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::identity;
use super::parameters::{Parameters, ROOT, no_system, which_system};
use super::service::Service;

const SYSTEMS: &str = "/redfish/v1/Systems";

/// The type of a machine; a chassis has a power state too, and is none.
const TYPE: &str = "#ComputerSystem.";

/// The fields that somebody reads. All may be missing: what is not said is unknown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct System {
    #[serde(rename = "@odata.id")]
    id: Option<String>,
    #[serde(rename = "@odata.type")]
    kind: Option<String>,
    #[serde(rename = "PowerState")]
    power_state: Option<String>,
    #[serde(rename = "UUID")]
    uuid: Option<String>,
    #[serde(rename = "SerialNumber")]
    serial: Option<String>,
    #[serde(rename = "Actions")]
    actions: Actions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Actions {
    #[serde(rename = "#ComputerSystem.Reset")]
    reset: Option<Reset>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reset {
    target: Option<String>,
    #[serde(rename = "ResetType@Redfish.AllowableValues")]
    allowed: Option<Vec<String>>,
    #[serde(rename = "@Redfish.ActionInfo")]
    info: Option<String>,
}

/// Newer services say there what an action takes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ActionInfo {
    #[serde(rename = "Parameters")]
    parameters: Vec<ActionParameter>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ActionParameter {
    #[serde(rename = "Name")]
    name: Option<String>,
    #[serde(rename = "AllowableValues")]
    allowed: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Collection {
    #[serde(rename = "Members")]
    members: Vec<Member>,
    #[serde(rename = "Members@odata.count")]
    count: Option<usize>,
}

#[derive(Deserialize)]
struct Member {
    #[serde(rename = "@odata.id")]
    id: String,
    /// Makes it an object: of a list serde would take the first entry.
    #[serde(flatten)]
    _others: BTreeMap<String, IgnoredAny>,
}

/// The path of the machine's system: the named one, or the only one.
pub(super) async fn path(service: &mut Service<'_>, parameters: &Parameters) -> Result<String, DeviceError> {
    if let Some(path) = &parameters.system {
        return Ok(path.clone());
    }
    service.get::<Collection>(SYSTEMS).await?.only()
}

impl Collection {
    /// The path of its one member.
    pub(super) fn only(self) -> Result<String, DeviceError> {
        let Self { members, count } = self;
        let paths: Vec<String> = members.into_iter().map(|member| member.id).collect();
        match paths.as_slice() {
            // One of several pages may have one member.
            [only] if only.starts_with(ROOT) && count.is_none_or(|count| count == 1) => Ok(only.clone()),
            _ => Err(which_system(&paths)),
        }
    }
}

impl System {
    pub(super) async fn read(service: &mut Service<'_>, path: &str) -> Result<Self, DeviceError> {
        let system: Self = service.get(path).await?;
        match &system.kind {
            Some(kind) if !kind.starts_with(TYPE) => Err(no_system(kind)),
            Some(_) | None => Ok(Self { id: Some(path.to_owned()), ..system }),
        }
    }

    /// Only two words are plain; on its way, paused, unknown or silent is neither.
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

    /// For people.
    pub(super) fn said(&self) -> String {
        let or_silent = |text: &Option<String>| text.clone().unwrap_or_else(|| "not said".to_owned());
        let (id, state) = (or_silent(&self.id), or_silent(&self.power_state));
        format!(
            "{id}: PowerState {state}, UUID {}, SerialNumber {}",
            or_silent(&self.uuid),
            or_silent(&self.serial)
        )
    }

    /// Tells it to go to `goal`.
    pub(super) async fn reset(&self, service: &mut Service<'_>, goal: Power) -> Result<(), DeviceError> {
        let how = match goal {
            Power::On => "On",
            Power::Off => "ForceOff",
            Power::Unknown | Power::Gone => return Ok(()),
        };
        let Some(reset) = &self.actions.reset else {
            return Err(DeviceError::Failed {
                said: "the system has no action ComputerSystem.Reset".to_owned(),
            });
        };
        let Some(target) = reset.target.as_deref().filter(|target| target.starts_with(ROOT)) else {
            return Err(DeviceError::Garbage {
                said: "ComputerSystem.Reset has no target below /redfish/v1/".to_owned(),
            });
        };
        if let Some(allowed) = reset.allowed(service).await?
            && !allowed.iter().any(|word| word == how)
        {
            let said = format!("the system cannot {how}; it can {}", allowed.join(", "));
            return Err(DeviceError::Failed { said });
        }
        service.post(target, &json!({ "ResetType": how })).await
    }
}

impl Reset {
    /// `None` if the service does not say; then it is asked by being told.
    async fn allowed(&self, service: &mut Service<'_>) -> Result<Option<Vec<String>>, DeviceError> {
        match (&self.allowed, self.info.as_deref().filter(|path| path.starts_with(ROOT))) {
            (Some(allowed), _) => Ok(Some(allowed.clone())),
            (None, None) => Ok(None),
            (None, Some(path)) => {
                let info: ActionInfo = service.get(path).await?;
                let reset =
                    info.parameters.into_iter().find(|found| found.name.as_deref() == Some("ResetType"));
                Ok(reset.and_then(|reset| reset.allowed))
            }
        }
    }
}
