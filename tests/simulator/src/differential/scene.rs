//! A situation that random requests rarely reach: a running pod, a budget that selects it, and evictions that the
//! budget must decide about.

use serde_json::{Value, json};

use super::operation::{MERGE, Operation, STRATEGIC};
use super::templates::Target;
use crate::chance::Draws;

/// The requests of this situation in the first namespace of the sequence. `options` draws the options of each eviction.
pub(super) fn evictions(
    sequence: &str,
    draws: &mut Draws,
    mut options: impl FnMut(&mut Draws) -> Value,
) -> Vec<Operation> {
    let namespace = format!("{sequence}-a");
    let (pods, budgets) = (Target::Pod.collection(&namespace), Target::Budget.collection(&namespace));
    let mut operations = Vec::new();
    let names = ["a", "b"].map(|name| format!("{sequence}-{name}"));
    for name in &names {
        let pod = format!("{pods}/{name}");
        let mut object = Target::Pod.object(name, sequence, &namespace, draws);
        object["metadata"]["labels"]["app"] = "x".into();
        object["spec"]["nodeName"] = "n".into();
        operations.push(Operation::new("POST", &pods, &pod).json(object));
        let ready = draws.choose(&["True", "True", "False"]).copied();
        let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] });
        let patch = Operation::new("PATCH", &format!("{pod}/status"), &pod).typed(STRATEGIC);
        operations.push(patch.json(json!({ "status": status })));
    }
    let budget = format!("{budgets}/{sequence}-a");
    let mut object = Target::Budget.object(&names[0], sequence, &namespace, draws);
    object["spec"]["selector"] = json!({ "matchLabels": { "app": "x" } });
    operations.push(Operation::new("POST", &budgets, &budget).json(object));
    if draws.percent(15) {
        let second = Target::Budget.object(&names[1], sequence, &namespace, draws);
        operations.push(Operation::new("POST", &budgets, &format!("{budgets}/{}", names[1])).json(second));
    }
    for _ in 0..2 {
        if draws.percent(85) {
            let patch = Operation::new("PATCH", &format!("{budget}/status"), &budget).typed(MERGE);
            operations.push(patch.json(json!({ "status": Target::Budget.status(draws) })));
        }
        for name in &names {
            let pod = format!("{pods}/{name}");
            let mut body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
            if draws.percent(50) {
                body["deleteOptions"] = options(draws);
            }
            operations.push(Operation::new("POST", &format!("{pod}/eviction"), &pod).json(body));
        }
    }
    operations
}
