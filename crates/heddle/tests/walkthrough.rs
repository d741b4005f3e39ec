//! The walk in docs/walk.txt matches the code. `UPDATE_SNAPSHOTS=1` rewrites it.

mod walk;
mod world;

#[test]
#[cfg(debug_assertions)]
fn the_page_is_what_the_code_does() {
    let page = walk::page();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/walk.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, &page).expect("docs/walk.txt can be written");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(page == committed, "docs/walk.txt is not what the code does; UPDATE_SNAPSHOTS=1 writes it again:\n{page}");
}
