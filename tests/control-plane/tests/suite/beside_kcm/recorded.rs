//! The recorded states of kube-controller-manager in a file: for each step the changes since the step before.

use std::path::PathBuf;

use pod_safety_control_plane::{compare_golden, pinned_kubernetes, selected_kubernetes};
use serde_json::{Map, Value, json};

use super::{History, ObservedState};
use crate::versions;

const WRITES: &str = "POD_SAFETY_WRITE_KCM";

/// Whether the recording is written.
pub(crate) fn is_to_be_written() -> bool {
    std::env::var_os(WRITES).is_some()
}

pub(crate) struct Recorded {
    path: PathBuf,
    steps: Vec<String>,
    states: Vec<ObservedState>,
}

impl Recorded {
    pub(crate) fn from_history<A>(history: &History<A>, states: Vec<ObservedState>) -> Self {
        let steps = history.steps.iter().map(|step| step.name.clone()).collect();
        Self { path: path(history.name), steps, states }
    }

    /// Other versions of Kubernetes are compared with the same recording.
    ///
    /// # Errors
    /// It is of another version of Kubernetes than the pinned one, or of another history.
    pub(crate) fn read<A>(history: &History<A>) -> Result<Self, String> {
        let path = path(history.name);
        let anew = format!("{WRITES}=1 records it anew, with the test of this history that ends in _live");
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}; {anew}", path.display()))?;
        let file: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let pinned = pinned_kubernetes().map_err(|error| error.to_string())?;
        if file["kubernetes"] != *pinned {
            let is = &file["kubernetes"];
            return Err(format!("{} is of Kubernetes {is}, go.mod pins {pinned}; {anew}", path.display()));
        }
        let mut state = ObservedState::new();
        let (mut steps, mut pictures) = (Vec::new(), Vec::new());
        for step in file["steps"].as_array().into_iter().flatten() {
            steps.push(step["step"].as_str().unwrap_or_default().to_owned());
            for (line, value) in step["changes"].as_object().into_iter().flatten() {
                match value.as_str() {
                    Some(value) => drop(state.insert(line.clone(), versions::as_selected(value))),
                    None => drop(state.remove(line)),
                }
            }
            pictures.push(state.clone());
        }
        if !history.steps.iter().map(|step| &step.name).eq(&steps) {
            return Err(format!("{} is of other steps; {anew}", path.display()));
        }
        Ok(Self { path, steps, states: pictures })
    }

    /// The state after the step of this number.
    pub(crate) fn after(&self, at: usize) -> &ObservedState {
        &self.states[at]
    }

    /// Fails if the file changes, because the change needs a review.
    pub(crate) fn write(&self) -> Result<(), String> {
        if let Some(version) = selected_kubernetes() {
            return Err(format!("recordings are of the pinned version: unset KUBERNETES={version}"));
        }
        let none = ObservedState::new();
        let mut before = &none;
        let mut steps = Vec::new();
        for (step, state) in self.steps.iter().zip(&self.states) {
            let mut changes: Map<String, Value> = Map::new();
            for (line, value) in state.iter().filter(|(line, value)| before.get(*line) != Some(*value)) {
                changes.insert(line.clone(), json!(value));
            }
            for line in before.keys().filter(|line| !state.contains_key(*line)) {
                changes.insert(line.clone(), Value::Null);
            }
            steps.push(json!({ "step": step, "changes": changes }));
            before = state;
        }
        let pinned = pinned_kubernetes().map_err(|error| error.to_string())?;
        let file = json!({ "kubernetes": pinned, "steps": steps });
        let text = serde_json::to_string_pretty(&file).map_err(|error| error.to_string())? + "\n";
        compare_golden(&self.path, &text, WRITES).map_err(|error| error.to_string())
    }
}

fn path(history: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/kcm/{history}.json"))
}
