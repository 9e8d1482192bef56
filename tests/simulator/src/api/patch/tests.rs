//! Laws of patches.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (0_i64..5).prop_map(Value::from),
        "[a-c]".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-d]", json_value(), 0..4)
        .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into())
}

fn patched(how: PatchType, current: &Value, patch: &Value) -> Value {
    apply(how, current, patch.clone()).unwrap()
}

proptest! {
    #[test]
    fn applying_a_merge_patch_twice_equals_once(current in object(), patch in object()) {
        for how in [PatchType::Merge, PatchType::Strategic] {
            let once = patched(how, &current, &patch);
            prop_assert_eq!(patched(how, &once, &patch), once);
        }
    }

    #[test]
    fn an_empty_patch_changes_nothing(current in object()) {
        for how in [PatchType::Merge, PatchType::Strategic] {
            prop_assert_eq!(&patched(how, &current, &json!({})), &current);
        }
        prop_assert_eq!(&patched(PatchType::Json, &current, &json!([])), &current);
    }

    #[test]
    fn an_object_merged_into_itself_stays(current in object()) {
        prop_assert_eq!(&patched(PatchType::Merge, &current, &current), &current);
    }

    #[test]
    fn an_added_value_can_be_tested_and_removed(current in object(), value in json_value()) {
        let patch = json!([
            { "op": "add", "path": "/new", "value": value },
            { "op": "test", "path": "/new", "value": value },
            { "op": "copy", "from": "/new", "path": "/copy" },
            { "op": "move", "from": "/copy", "path": "/moved" },
            { "op": "remove", "path": "/moved" },
            { "op": "remove", "path": "/new" },
        ]);
        prop_assert_eq!(&patched(PatchType::Json, &current, &patch), &current);
    }
}

#[test]
fn finalizers_are_a_set_owners_have_uids_and_taints_are_replaced() {
    let current = json!({ "metadata": { "finalizers": ["a"], "ownerReferences": [{ "uid": "1", "name": "x" }] }, "spec": { "taints": [{ "key": "k" }] } });
    let patch = json!({ "metadata": { "finalizers": ["b", "a"], "ownerReferences": [{ "uid": "2" }] }, "spec": { "taints": [{ "key": "l" }] } });
    let after = patched(PatchType::Strategic, &current, &patch);
    assert_eq!(after["metadata"]["finalizers"], json!(["b", "a"]));
    assert_eq!(after["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
    assert_eq!(after["spec"]["taints"], json!([{ "key": "l" }]));
}

#[test]
fn directives_delete_from_lists() {
    let current = json!({ "status": { "conditions": [{ "type": "A" }, { "type": "B" }] }, "metadata": { "finalizers": ["a", "b"] } });
    let patch = json!({ "status": { "conditions": [{ "$patch": "delete", "type": "A" }] }, "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } });
    let after = patched(PatchType::Strategic, &current, &patch);
    assert_eq!(after["status"]["conditions"], json!([{ "type": "B" }]));
    assert_eq!(after["metadata"]["finalizers"], json!(["b"]));
}
