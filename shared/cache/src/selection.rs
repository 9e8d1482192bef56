//! Which pods a selector matches, and which selectors match a pod: computed at each lookup and not stored.
//!
//! Pods with the same labels in the same namespace form a *class*: the replicas of one ReplicaSet are one class, and
//! a selector is matched against each class once. Where a selector requires a pair (`app: db`), only classes with
//! that pair are tried. KCM tries every selector of a namespace on each pod that changes, and every pod of a
//! namespace for each budget.
//!
//! Invariant: memory grows with pods plus budgets, never with their product: a tenant may have thousands of each, and
//! every budget may select every pod.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::index::forget;
use crate::clock::Mono;
use crate::model::{Labels, Pod, Selector, Uid};

type ClassId = u32;

/// The key under which classes and selectors are indexed: a hash of the namespace and of one label pair. The entries
/// of a bucket are matched, so a hash collision costs one comparison and nothing else.
type Bucket = u64;

#[derive(Debug)]
struct Class {
    namespace: Arc<str>,
    labels: Labels,
    pods: BTreeSet<Uid>,
    /// The controllers of the pods, each with its number of pods: mostly one.
    controllers: BTreeMap<Uid, usize>,
}

#[derive(Debug)]
struct SelectorEntry {
    namespace: Arc<str>,
    selector: Selector,
    /// When the selector was set, or when its pods last changed in a field that its budget counts.
    changed_at: Mono,
}

impl SelectorEntry {
    fn matches(&self, namespace: &str, labels: &Labels) -> bool {
        *self.namespace == *namespace && self.selector.matches(labels)
    }

    /// The one bucket that contains all classes that it may match.
    fn bucket(&self) -> Bucket {
        bucket(&self.namespace, self.selector.required_pair())
    }
}

/// The index. Selectors are keyed by the UID of the object that has them.
#[derive(Debug, Default)]
pub(super) struct Selection {
    classes: BTreeMap<ClassId, Class>,
    by_labels: BTreeMap<(Arc<str>, Labels), ClassId>,
    classes_at: BTreeSet<(Bucket, ClassId)>,
    classes_of: BTreeMap<Uid, BTreeSet<ClassId>>,
    selectors: BTreeMap<Uid, SelectorEntry>,
    selectors_at: BTreeMap<Bucket, BTreeSet<Uid>>,
    next: ClassId,
}

fn bucket(namespace: &str, pair: Option<(&str, &str)>) -> Bucket {
    let mut hasher = DefaultHasher::new();
    (namespace, pair).hash(&mut hasher);
    hasher.finish()
}

/// Every bucket in which a class is indexed.
fn buckets<'a>(namespace: &'a str, labels: &'a Labels) -> impl Iterator<Item = Bucket> + 'a {
    labels.iter().map(Some).chain([None]).map(move |pair| bucket(namespace, pair))
}

impl Selection {
    /// Handles an added, changed or removed pod; returns every budget whose numbers may change.
    pub(super) fn replace_pod(&mut self, before: Option<&Pod>, after: Option<&Pod>, now: Mono) -> BTreeSet<Uid> {
        let affected = self.replace(before, after);
        for uid in &affected {
            if let Some(entry) = self.selectors.get_mut(uid) {
                entry.changed_at = now;
            }
        }
        affected
    }

    fn replace(&mut self, before: Option<&Pod>, after: Option<&Pod>) -> BTreeSet<Uid> {
        if let (Some(before), Some(after)) = (before, after)
            && before.labels == after.labels
            && before.controller == after.controller
        {
            let health = |pod: &Pod| (pod.ready, pod.deletion.is_some());
            let same = health(before) == health(after);
            return if same { BTreeSet::new() } else { self.selectors_of_pod(after).cloned().collect() };
        }
        if let Some(before) = before {
            self.remove_pod(before);
        }
        if let Some(after) = after {
            self.add_pod(after);
        }
        before.into_iter().chain(after).flat_map(|pod| self.selectors_of_pod(pod)).cloned().collect()
    }

    fn add_pod(&mut self, pod: &Pod) {
        let (namespace, labels) = (&pod.key.namespace, &pod.labels);
        let id = match self.by_labels.get(&(Arc::clone(namespace), labels.clone())) {
            Some(id) => *id,
            None => self.add_class(namespace, labels),
        };
        let Some(class) = self.classes.get_mut(&id) else { return };
        class.pods.insert(pod.uid().clone());
        if let Some(controller) = &pod.controller {
            *class.controllers.entry(controller.uid.clone()).or_default() += 1;
            self.classes_of.entry(controller.uid.clone()).or_default().insert(id);
        }
    }

    fn remove_pod(&mut self, pod: &Pod) {
        let key = (Arc::clone(&pod.key.namespace), pod.labels.clone());
        let Some(id) = self.by_labels.get(&key).copied() else { return };
        let Some(class) = self.classes.get_mut(&id) else { return };
        class.pods.remove(pod.uid());
        if let Some(controller) = &pod.controller
            && let Some(count) = class.controllers.get_mut(&controller.uid)
        {
            *count -= 1;
            if *count == 0 {
                class.controllers.remove(&controller.uid);
                forget(&mut self.classes_of, &controller.uid, &id);
            }
        }
        if class.pods.is_empty() {
            for bucket in buckets(&pod.key.namespace, &pod.labels) {
                self.classes_at.remove(&(bucket, id));
            }
            self.classes.remove(&id);
            self.by_labels.remove(&key);
        }
    }

    /// Adds the class of its first pod.
    fn add_class(&mut self, namespace: &Arc<str>, labels: &Labels) -> ClassId {
        let id = self.next;
        // An id would repeat only after 2³² new classes while one of them stays.
        self.next = self.next.wrapping_add(1);
        self.classes_at.extend(buckets(namespace, labels).map(|bucket| (bucket, id)));
        let (namespace, labels) = (Arc::clone(namespace), labels.clone());
        self.by_labels.insert((Arc::clone(&namespace), labels.clone()), id);
        let class = Class { namespace, labels, pods: BTreeSet::new(), controllers: BTreeMap::new() };
        self.classes.insert(id, class);
        id
    }

    /// Adds or replaces the selector of an object.
    pub(super) fn set_selector(&mut self, namespace: &Arc<str>, selector: Selector, uid: &Uid, now: Mono) {
        self.remove_selector(uid);
        let entry = SelectorEntry { namespace: Arc::clone(namespace), selector, changed_at: now };
        self.selectors_at.entry(entry.bucket()).or_default().insert(uid.clone());
        self.selectors.insert(uid.clone(), entry);
    }

    /// Removes the selector of an object that was removed or selects nothing any more.
    pub(super) fn remove_selector(&mut self, uid: &Uid) {
        let Some(entry) = self.selectors.remove(uid) else { return };
        forget(&mut self.selectors_at, &entry.bucket(), uid);
    }

    /// When the selector or its pods last changed.
    pub(super) fn changed_at(&self, selector: &Uid) -> Option<Mono> {
        self.selectors.get(selector).map(|entry| entry.changed_at)
    }

    /// The pods that it matches.
    pub(super) fn pods_selected_by<'a>(&'a self, selector: &Uid) -> impl Iterator<Item = &'a Uid> + use<'a> {
        let matching_classes = |entry: &'a SelectorEntry| {
            let bucket = entry.bucket();
            let ids = self.classes_at.range((bucket, ClassId::MIN)..=(bucket, ClassId::MAX));
            let classes = ids.filter_map(|(_, id)| self.classes.get(id));
            classes.filter(|class| entry.matches(&class.namespace, &class.labels))
        };
        self.selectors.get(selector).into_iter().flat_map(matching_classes).flat_map(|class| &class.pods)
    }

    /// The pods of this controller, and others with the same labels.
    pub(super) fn pods_in_classes_of<'a>(&'a self, controller: &Uid) -> impl Iterator<Item = &'a Uid> + use<'a> {
        let classes = self.classes_of.get(controller).into_iter().flatten();
        classes.filter_map(|id| self.classes.get(id)).flat_map(|class| &class.pods)
    }

    /// The pods of a namespace with too many labels to be matched by a selector.
    pub(super) fn pods_with_omitted_labels<'a>(
        &'a self,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &'a Uid> + use<'a> {
        let id = self.by_labels.get(&(Arc::clone(namespace), Labels::omitted()));
        id.and_then(|id| self.classes.get(id)).into_iter().flat_map(|class| &class.pods)
    }

    /// The selectors that match this pod, or would match a pod with its labels.
    pub(super) fn selectors_of_pod<'a>(&'a self, pod: &Pod) -> impl Iterator<Item = &'a Uid> + use<'a> {
        self.selectors_matching(&pod.key.namespace, &pod.labels)
    }

    fn selectors_matching<'a>(
        &'a self,
        namespace: &Arc<str>,
        labels: &Labels,
    ) -> impl Iterator<Item = &'a Uid> + use<'a> {
        let (namespace, labels) = (Arc::clone(namespace), labels.clone());
        // A set: a tenant can choose label pairs whose hashes collide, and each selector must be returned once.
        let buckets_of_pod: BTreeSet<Bucket> = buckets(&namespace, &labels).collect();
        let uids = buckets_of_pod.into_iter().flat_map(|bucket| self.selectors_at.get(&bucket).into_iter().flatten());
        uids.filter(move |uid| self.selectors.get(uid).is_some_and(|entry| entry.matches(&namespace, &labels)))
    }

    /// The selectors that match a pod of this controller.
    pub(super) fn selectors_of_controller<'a>(&'a self, controller: &Uid) -> impl Iterator<Item = &'a Uid> + use<'a> {
        let classes = self.classes_of.get(controller).into_iter().flatten();
        let classes = classes.filter_map(|id| self.classes.get(id));
        classes.flat_map(|class| self.selectors_matching(&class.namespace, &class.labels))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Requirement;

    #[derive(Clone, Debug)]
    enum Step {
        Pod { pod: u8, namespace: u8, labels: Labels },
        NoPod { pod: u8 },
        Selector { uid: u8, namespace: u8, selector: Selector },
        NoSelector { uid: u8 },
    }

    fn labels() -> impl Strategy<Value = Labels> {
        proptest::collection::btree_map("[ab]", "[xy]", 0..3).prop_map(|pairs| pairs.into_iter().collect())
    }

    fn selector() -> impl Strategy<Value = Selector> {
        let values = || proptest::collection::vec("[xy]", 1..3);
        let requirement = prop_oneof![
            ("[ab]", "[xy]").prop_map(|(key, value)| Requirement::equals(&key, &value).unwrap()),
            ("[ab]", values()).prop_map(|(key, values)| Requirement::expression(&key, "NotIn", &values).unwrap()),
            ("[ab]", values()).prop_map(|(key, values)| Requirement::expression(&key, "In", &values).unwrap()),
            "[ab]".prop_map(|key| Requirement::expression(&key, "Exists", &[]).unwrap()),
        ];
        proptest::collection::vec(requirement, 0..3).prop_map(|wants| wants.into_iter().collect())
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..6_u8, 0..2_u8, labels()).prop_map(|(pod, namespace, labels)| Step::Pod { pod, namespace, labels }),
            1 => (0..6_u8).prop_map(|pod| Step::NoPod { pod }),
            2 => (0..4_u8, 0..2_u8, selector()).prop_map(|(uid, namespace, selector)| Step::Selector { uid, namespace, selector }),
            1 => (0..4_u8).prop_map(|uid| Step::NoSelector { uid }),
        ]
    }

    fn name(number: u8) -> Arc<str> {
        format!("ns{number}").into()
    }

    fn uid(kind: &str, number: u8) -> Uid {
        Uid::new(&format!("{kind}{number}")).unwrap()
    }

    #[derive(Default)]
    struct Model {
        pods: BTreeMap<u8, Pod>,
        selectors: BTreeMap<u8, (Arc<str>, Selector)>,
    }

    /// A pod of the controller that has its namespace's name.
    fn pod(pod: u8, namespace: u8, labels: Labels) -> Pod {
        use crate::model::{Controller, Phase, PodKey, Tolerations};
        let controller = Controller {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "c".into(),
            uid: uid("c", namespace),
        };
        Pod {
            key: PodKey { namespace: name(namespace), name: format!("p{pod}").into(), uid: uid("p", pod) },
            rv: "1".parse().unwrap(),
            generation: 0,
            created: 0,
            node: None,
            phase: Phase::parse("Running"),
            observed_generation: 0,
            evicted: false,
            running_containers: 0,
            container_states: 0,
            worker_may_be_busy: false,
            mirror: false,
            ready: true,
            unreachable: crate::model::ConditionState::Missing,
            labels,
            controller: Some(controller.into()),
            first_seen: Mono::default(),
            placed_at: Mono::default(),
            became_ready: None,
            gated: false,
            unschedulable: false,
            bound_at: 0,
            tolerations: Tolerations::default(),
            uncommon: None,
        }
    }

    fn apply(model: &mut Model, index: &mut Selection, step: Step) {
        match step {
            Step::Pod { pod: number, namespace, labels } => {
                let after = pod(number, namespace, labels);
                let before = model.pods.insert(number, after.clone());
                index.replace_pod(before.as_ref(), Some(&after), Mono::default());
            }
            Step::NoPod { pod } => {
                let before = model.pods.remove(&pod);
                index.replace_pod(before.as_ref(), None, Mono::default());
            }
            Step::Selector { uid: number, namespace, selector } => {
                model.selectors.insert(number, (name(namespace), selector.clone()));
                index.set_selector(&name(namespace), selector, &uid("s", number), Mono::default());
            }
            Step::NoSelector { uid: number } => {
                model.selectors.remove(&number);
                index.remove_selector(&uid("s", number));
            }
        }
    }

    /// Compares the index with a full search.
    fn check(model: &Model, index: &Selection) -> Result<(), TestCaseError> {
        let selects =
            |at: &Arc<str>, selector: &Selector, pod: &Pod| *at == pod.key.namespace && selector.matches(&pod.labels);
        for (number, (namespace, selector)) in &model.selectors {
            let matching = model.pods.values().filter(|pod| selects(namespace, selector, pod));
            let expected: BTreeSet<Uid> = matching.map(|pod| pod.uid().clone()).collect();
            let selected: BTreeSet<Uid> = index.pods_selected_by(&uid("s", *number)).cloned().collect();
            prop_assert_eq!(selected, expected);
        }
        let selectors_of = |pods: &[&Pod]| -> BTreeSet<Uid> {
            let selects_any =
                |(_, (at, selector)): &(&u8, &(Arc<str>, Selector))| pods.iter().any(|pod| selects(at, selector, pod));
            model.selectors.iter().filter(selects_any).map(|(number, _)| uid("s", *number)).collect()
        };
        for pod in model.pods.values() {
            let mut selectors: Vec<Uid> = index.selectors_of_pod(pod).cloned().collect();
            selectors.sort_unstable();
            prop_assert_eq!(selectors, Vec::from_iter(selectors_of(&[pod])));
        }
        for number in 0..2 {
            let of = uid("c", number);
            let managed = |pod: &&Pod| pod.controller.as_ref().is_some_and(|by| by.uid == of);
            let managed: Vec<&Pod> = model.pods.values().filter(managed).collect();
            let selectors: BTreeSet<Uid> = index.selectors_of_controller(&of).cloned().collect();
            prop_assert_eq!(selectors, selectors_of(&managed));
        }
        Ok(())
    }

    /// The hash has no secret, so a tenant finds two label pairs with one hash in 2³² tries: three minutes. The
    /// budget was returned twice and counted as two that overlap, and its pods were not evicted.
    #[test]
    fn attack_label_pairs_with_one_hash_returned_a_budget_twice() {
        let pairs = [("k5ae02f4f580e2b21", "v"), ("kc1635625f775271a", "v")];
        let both: Labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(
            bucket("ns0", Some(pairs[0])),
            bucket("ns0", Some(pairs[1])),
            "seek others: the hash of std changed"
        );
        let mut index = Selection::default();
        let selector = Requirement::equals(pairs[0].0, pairs[0].1).into_iter().collect();
        index.set_selector(&name(0), selector, &uid("s", 0), Mono::default());
        assert_eq!(index.selectors_of_pod(&pod(0, 0, both)).count(), 1);
    }

    proptest! {
        #[test]
        fn a_selector_lookup_agrees_with_a_full_search(steps in proptest::collection::vec(step(), 0..40)) {
            let (mut model, mut index) = (Model::default(), Selection::default());
            for step in steps {
                apply(&mut model, &mut index, step);
                check(&model, &index)?;
            }
            for pod in 0..6 {
                apply(&mut model, &mut index, Step::NoPod { pod });
            }
            prop_assert!(index.classes.is_empty() && index.by_labels.is_empty());
            prop_assert!(index.classes_at.is_empty() && index.classes_of.is_empty());
        }
    }
}
