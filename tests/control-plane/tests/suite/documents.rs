//! What is copied from the documentation works: every YAML block is given to the real kubectl and API server.
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

use std::path::{Path, PathBuf};

use pod_safety_control_plane::{ControlPlane, Options, until};
use serde_json::Value;

/// On the line before a block that is no object of Kubernetes, with what it is.
const NOT_APPLIED: &str = "<!-- not applied: ";

/// A block of YAML: in which file, at which line, what.
struct Block {
    place: String,
    text: String,
    is_applied: bool,
}

#[tokio::test]
async fn bug_every_yaml_block_of_the_documentation_can_be_applied() {
    let blocks = blocks();
    assert!(blocks.len() > 5, "the documentation has blocks");
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    plane.install_pod_safety().await.unwrap();
    for block in blocks.iter().filter(|block| block.is_applied) {
        for document in serde_saphyr::from_multiple::<Value>(&block.text).unwrap() {
            if let Some(namespace) = document["metadata"]["namespace"].as_str() {
                plane.namespace(namespace).await.unwrap();
            }
        }
        // A new kind is known to the API server a moment later.
        until(&block.place, async || refusal(&plane, &block.text).await.map_or(Ok(()), Err)).await.unwrap();
    }
    // By YAML 1.1 `off` is a truth value, which is what kubectl makes of it: this check must see such a thing.
    let old = "apiVersion: pod-safety.dev/v1alpha1\nkind: FenceDevice\nmetadata: { namespace: pod-safety, name: bmc }\n\
        spec: { driver: Manual, timeouts: { off: 60s } }\n";
    let refused = refusal(&plane, old).await.unwrap();
    assert!(refused.contains("unknown field \"spec.timeouts.false\""), "{refused}");
}

/// Why it is not taken; none: it would be.
async fn refusal(plane: &ControlPlane, text: &str) -> Option<String> {
    let output = plane.kubectl_with(&["apply", "--dry-run=server", "-f", "-"], text).await.unwrap();
    (!output.status.success()).then_some(output.stderr)
}

fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    for folder in ["docs", "docs/runbooks"] {
        let pages = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.extend(pages.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    files.sort();
    files.iter().flat_map(of_file).collect()
}

fn of_file(path: &PathBuf) -> Vec<Block> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let (mut inside, mut before) = (false, "");
    for (number, line) in (1..).zip(text.lines()) {
        match line.trim() {
            "```yaml" | "```yml" => {
                inside = true;
                let name = path.file_name().unwrap().display();
                let is_applied = !before.starts_with(NOT_APPLIED);
                blocks.push(Block { place: format!("{name}:{number}"), text: String::new(), is_applied });
            }
            "```" => inside = false,
            _ if inside => blocks.last_mut().unwrap().text.push_str(&format!("{line}\n")),
            _ => {}
        }
        before = line.trim();
    }
    blocks
}
