//! What is written, and what is not.

use super::*;

fn new() -> (PathBuf, Folder) {
    let path = std::env::temp_dir().join(format!("pod-safety-report-{:x}", super::super::random()));
    (path.clone(), Folder::new(path).unwrap())
}

#[test]
fn no_file_of_a_report_has_a_credential() {
    use std::os::unix::fs::PermissionsExt as _;

    let (path, mut folder) = new();
    folder.write_both("status", Ok(("https://a:hunter2@h".to_owned(), json!({ "message": "password=hunter2" }))));
    let node = json!({ "metadata": { "annotations": { "x": "hunter2" } } });
    write_list(&mut folder, "nodes", vec![node], redact::redact_object);
    folder.write("logs/a.log", "Bearer hunter2\n");
    for file in &folder.files {
        let text = std::fs::read_to_string(path.join(file)).unwrap();
        assert!(!text.contains("hunter2") && !text.is_empty(), "{file}: {text}");
        let mode = std::fs::metadata(path.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o77, 0, "{file} is for its owner alone");
    }
    assert_eq!(folder.files, ["status.txt", "status.json", "objects/nodes.yaml", "logs/a.log"]);
    let again = Folder::new(path.clone());
    assert!(again.is_err(), "what is there already is not mixed with what is new");
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn an_unreadable_part_is_listed_and_the_rest_is_written() {
    let (path, mut folder) = new();
    folder.write_both("doctor", Err(anyhow::anyhow!("the API server answered 403")));
    folder.write("status.txt", "x\n");
    let text = readme(&folder, &Target::default(), "v1.37.2", "2026-11-21T10:23:05Z".parse().unwrap());
    for expected in ["cluster v1.37.2", "- status.txt", "## Not in it\n\n- doctor: the API server answered 403\n"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let closing = closing_note(&folder, &Target::default());
    assert!(closing.contains("1 part could not be read") && closing.contains("    tar -czf "), "{closing}");
    std::fs::remove_dir_all(path).unwrap();
}

/// Two pods of the same name in two namespaces made the report fail: so a tenant could prevent it.
#[test]
fn attack_an_unwritable_file_is_listed_and_the_rest_is_written() {
    let (path, mut folder) = new();
    folder.write("logs/a.log", "one\n");
    folder.write("logs/a.log", "another\n");
    folder.write("status.txt", "x\n");
    assert_eq!(folder.files, ["logs/a.log", "status.txt"]);
    assert!(folder.missing[0].starts_with("logs/a.log: it cannot be written: "), "{:?}", folder.missing);
    std::fs::remove_dir_all(path).unwrap();
}
