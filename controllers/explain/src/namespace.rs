//! What holds a namespace that was asked to end.

use jiff::Timestamp;
use pod_safety_shared::model::Pod;
use serde_json::Value;

use super::answer::{Answer, Item, Judgement, Next, Standing, plural, since, span};
use super::pod::explain_pod;
use super::scene::Scene;

/// So many things that hold it are listed of one kind.
const SHOWN: usize = 10;

/// An object in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its kind, as `kubectl` takes it: `configmaps`, `kafkas.kafka.strimzi.io`.
    pub resource: String,
    /// Its name.
    pub name: String,
    /// What keeps it.
    pub finalizers: Vec<String>,
    /// It was asked to end.
    pub deleting: bool,
}

impl Content {
    /// Reads any object.
    #[must_use]
    pub fn of(resource: &str, object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
        Some(Self {
            resource: resource.to_owned(),
            name: metadata["name"].as_str()?.to_owned(),
            finalizers: finalizers.filter_map(|one| one.as_str().map(str::to_owned)).collect(),
            deleting: metadata["deletionTimestamp"].is_string(),
        })
    }
}

/// What was found in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// How many kinds were asked for.
    pub kinds: usize,
    /// The objects.
    pub objects: Vec<Content>,
    /// The API services that do not answer, with what is wrong.
    pub services: Vec<(String, String)>,
    /// The kinds that could not be listed, with what is wrong.
    pub unlisted: Vec<(String, String)>,
}

/// Answers for a namespace. With `steps` the commands that let go what holds it, and what each leaves behind.
#[must_use]
pub fn explain_namespace(namespace: &Value, contents: &Contents, steps: bool, scene: &Scene<'_>) -> Answer {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    let asked =
        namespace["metadata"]["deletionTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let object = format!("namespace/{name}");
    let Some(asked) = asked else {
        let mut answer =
            Answer::new(object, Judgement::new(Standing::Free, "Active", "it is not being deleted."));
        answer.facts = vec!["Active".to_owned()];
        return answer;
    };
    let items = items(name, contents, scene);
    let mut answer = Answer::new(object, verdict(namespace, &items, contents));
    answer.facts = vec![
        format!("Terminating {}", span(since(asked, scene.wall))),
        format!("{} kinds of objects checked", contents.kinds),
    ];
    next(&mut answer, name, contents, &items, steps);
    answer.items = items;
    for (resource, why) in contents.unlisted.iter().take(SHOWN) {
        answer.missing.push(format!("{resource} could not be listed: {why}"));
    }
    answer.notes.push(
        "Do not clear spec.finalizers of the namespace: what is left in it would stay in etcd, out of reach."
            .to_owned(),
    );
    answer
}

fn items(name: &str, contents: &Contents, scene: &Scene<'_>) -> Vec<Item> {
    let mut items = Vec::new();
    for (service, why) in &contents.services {
        let message = format!("it does not answer, so its objects cannot be listed or deleted: {why}");
        items.push(Item {
            object: format!("apiservice/{service}"),
            verdict: Judgement::new(Standing::Blocked, "ApiServiceUnavailable", message),
        });
    }
    let pods: Vec<&Pod> = scene.view.all_pods().filter(|pod| *pod.key.namespace == *name).collect();
    for content in &contents.objects {
        let pod = pods.iter().find(|pod| content.resource == "pods" && *pod.key.name == *content.name);
        let verdict = match pod {
            Some(pod) => explain_pod(pod, scene).verdict,
            None if content.deleting && !content.finalizers.is_empty() => {
                let owners = content.finalizers.join(", ");
                Judgement::new(
                    Standing::Blocked,
                    "Finalizers",
                    format!("only the owners of its finalizers can let it go: {owners}"),
                )
            }
            None if content.deleting => {
                Judgement::new(Standing::Waiting, "BeingDeleted", "it is being deleted")
            }
            None => Judgement::new(
                Standing::Waiting,
                "NotAskedYet",
                "the namespace controller has not deleted it yet",
            ),
        };
        items.push(Item { object: format!("{}/{name}/{}", content.resource, content.name), verdict });
    }
    items.sort_by_key(|item| std::cmp::Reverse(item.verdict.standing));
    items
}

fn verdict(namespace: &Value, items: &[Item], contents: &Contents) -> Judgement {
    let blocked = items.iter().filter(|item| item.verdict.standing == Standing::Blocked).count();
    let said: Vec<&str> = namespace["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["status"] == "True")
        .filter_map(|one| one["message"].as_str())
        .collect();
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(" The namespace controller says: {}", said.join(" "))
    };
    match blocked {
        0 if items.is_empty() && contents.unlisted.is_empty() => Judgement::new(
            Standing::Waiting,
            "Empty",
            format!(
                "nothing is left in it. It is removed as soon as the namespace controller notices that.{said}"
            ),
        ),
        0 if items.is_empty() => Judgement::new(
            Standing::Unknown,
            "NotRead",
            format!("nothing was found in it, but not everything could be listed.{said}"),
        ),
        0 => Judgement::new(
            Standing::Waiting,
            "BeingEmptied",
            format!("{} left, and nothing blocks their deletion.{said}", plural(items.len(), "object")),
        ),
        count => Judgement::new(
            Standing::Blocked,
            items[0].verdict.reason,
            format!("{} it, of {} left.{said}", holds(count), plural(items.len(), "object")),
        ),
    }
}

fn holds(count: usize) -> String {
    if count == 1 { "1 object blocks".to_owned() } else { format!("{count} objects block") }
}

fn next(answer: &mut Answer, name: &str, contents: &Contents, items: &[Item], steps: bool) {
    for (service, _) in &contents.services {
        answer.next(
            "Restore the service, or delete the APIService if its product is permanently gone",
            format!("kubectl get apiservice {service} -o yaml"),
        );
    }
    for item in items.iter().filter(|item| item.verdict.standing == Standing::Blocked) {
        if let Some(pod) = item.object.strip_prefix(&format!("pods/{name}/")) {
            answer.next(
                format!("Find out why pod {pod} does not terminate"),
                format!("pod-safety explain pod -n {name} {pod}"),
            );
        }
    }
    let held = contents
        .objects
        .iter()
        .filter(|one| one.resource != "pods" && one.deleting && !one.finalizers.is_empty());
    for Content { resource, name: object, finalizers, .. } in held.take(SHOWN) {
        let owners = finalizers.join(", ");
        answer.next(
            format!("Find the controller that owns {owners} on {resource} {object}, and start it"),
            format!("kubectl get {resource} {object} -n {name} -o yaml --show-managed-fields"),
        );
        if steps {
            answer.next.push(Next {
                when: format!("Only if that controller is permanently gone: whatever it should have cleaned up outside the cluster stays behind ({owners})"),
                command: format!("kubectl patch {resource} {object} -n {name} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"),
                safe: false,
            });
        }
    }
    if !steps && answer.verdict.standing == Standing::Blocked {
        answer.next("Print the steps", format!("pod-safety resolve namespace {name}"));
    }
}
