//! GET and HEAD: a file, a part of one, a directory's index page or its listing.

use std::fmt::Write as _;
use std::fs::File;
use std::time::SystemTime;

use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue, LAST_MODIFIED, LOCATION,
};
use hyper::{Request, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use rustix::io::Errno;

use super::body::{Body, FileBody, SharedPieces};
use super::directory::{self, Directory};
use super::range::{self, Version, Wanted};
use super::{plain, with_data};

/// The index page of a directory.
const INDEX: &[u8] = b"index.html";
/// Characters to be escaped in a path: all but the unreserved ones of RFC 3986, section 2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Answers a GET or HEAD. (hyper leaves out the content for HEAD.)
pub fn respond<T>(root: &Directory, request: &Request<T>, pieces: &SharedPieces) -> Response<Body> {
    let path: Vec<u8> = percent_decode_str(request.uri().path()).collect();
    let inside = &path[path.iter().take_while(|byte| **byte == b'/').count()..];
    find(root, request, inside, pieces).unwrap_or_else(refusal)
}

fn find<T>(
    root: &Directory,
    request: &Request<T>,
    path: &[u8],
    pieces: &SharedPieces,
) -> Result<Response<Body>, Errno> {
    let file = root.entry(path)?;
    let metadata = file.metadata().map_err(errno)?;
    if metadata.is_file() {
        if path.ends_with(b"/") {
            return Err(Errno::NOTDIR);
        }
        return serve(request, file, path, pieces);
    }
    if !metadata.is_dir() {
        return Err(Errno::ACCESS);
    }
    if !path.is_empty() && !path.ends_with(b"/") {
        return Ok(moved(path));
    }
    let index = [path, INDEX].concat();
    match root.entry(&index) {
        Ok(page) => serve(request, page, &index, pieces),
        Err(Errno::NOENT) => listing(path, &file),
        Err(error) => Err(error),
    }
}

fn serve<T>(request: &Request<T>, file: File, path: &[u8], pieces: &SharedPieces) -> Result<Response<Body>, Errno> {
    let metadata = file.metadata().map_err(errno)?;
    let length = metadata.len();
    let version = Version::new(length, metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH));
    let (status, start, end) = match range::wanted(request.headers(), length, &version) {
        Wanted::Whole => (StatusCode::OK, 0, length),
        Wanted::Part(start, end) => (StatusCode::PARTIAL_CONTENT, start, end),
        Wanted::Nothing => (StatusCode::NOT_MODIFIED, 0, 0),
        Wanted::Unsatisfiable => {
            let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE, format!("the file has {length} bytes\n"));
            response.headers_mut().insert(CONTENT_RANGE, value(format!("bytes */{length}")));
            return Ok(response);
        }
    };
    let mut response = Response::new(Body::Right(FileBody::new(file, start, end, pieces.clone())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(ETAG, value(version.etag));
    headers.insert(LAST_MODIFIED, value(httpdate::fmt_http_date(version.modified)));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status != StatusCode::NOT_MODIFIED {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(path)));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(end - start));
    }
    if status == StatusCode::PARTIAL_CONTENT {
        headers.insert(CONTENT_RANGE, value(format!("bytes {start}-{}/{length}", end - 1)));
    }
    Ok(response)
}

/// Redirects to the same path with a trailing slash, without which relative links of an index page would be wrong.
fn moved(path: &[u8]) -> Response<Body> {
    let parts: Vec<String> =
        path.split(|byte| *byte == b'/').map(|part| percent_encode(part, ESCAPED).to_string()).collect();
    let mut response = plain(StatusCode::MOVED_PERMANENTLY, "");
    response.headers_mut().insert(LOCATION, value(format!("/{}/", parts.join("/"))));
    response
}

fn listing(path: &[u8], directory: &File) -> Result<Response<Body>, Errno> {
    let title = escape(&String::from_utf8_lossy(path));
    let mut page =
        format!("<!doctype html>\n<meta charset=\"utf-8\">\n<title>/{title}</title>\n<h1>/{title}</h1>\n<ul>\n");
    if !path.is_empty() {
        page.push_str("<li><a href=\"../\">../</a>\n");
    }
    for entry in directory::list(directory)? {
        let slash = if entry.is_directory { "/" } else { "" };
        let link = percent_encode(&entry.name, ESCAPED);
        let name = escape(&String::from_utf8_lossy(&entry.name));
        // Writing to a string does not fail.
        let _ = writeln!(page, "<li><a href=\"{link}{slash}\">{name}{slash}</a>");
    }
    page.push_str("</ul>\n");
    Ok(with_data(StatusCode::OK, "text/html; charset=utf-8", page))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn refusal(error: Errno) -> Response<Body> {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG => {
            plain(StatusCode::NOT_FOUND, "there is no such file\n")
        }
        Errno::XDEV | Errno::ACCESS | Errno::PERM => plain(StatusCode::FORBIDDEN, "this file is not served\n"),
        Errno::INVAL => plain(StatusCode::BAD_REQUEST, "this is no path\n"),
        Errno::MFILE | Errno::NFILE => plain(StatusCode::SERVICE_UNAVAILABLE, "too many files are open; try again\n"),
        other => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{other}\n")),
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// A header's value. Our values have visible ASCII only; any other would become empty.
fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

fn content_type(path: &[u8]) -> &'static str {
    let extension = path.rsplit(|byte| *byte == b'.').next().unwrap_or_default().to_ascii_lowercase();
    match &extension[..] {
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"js" | b"mjs" => "text/javascript; charset=utf-8",
        b"txt" | b"md" | b"rs" | b"toml" | b"log" => "text/plain; charset=utf-8",
        b"csv" => "text/csv; charset=utf-8",
        b"json" => "application/json",
        b"xml" => "application/xml",
        b"pdf" => "application/pdf",
        b"wasm" => "application/wasm",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"gif" => "image/gif",
        b"webp" => "image/webp",
        b"ico" => "image/x-icon",
        b"mp4" => "video/mp4",
        _ => "application/byte-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::super::body::PieceLimit;
    use super::*;

    fn site() -> (tempfile::TempDir, Directory) {
        let path = tempfile::tempdir().unwrap();
        std::fs::write(path.path().join("a b.txt"), "0123456789").unwrap();
        std::fs::create_dir(path.path().join("with index")).unwrap();
        std::fs::write(path.path().join("with index/index.html"), "<p>index").unwrap();
        std::fs::create_dir(path.path().join("empty")).unwrap();
        let directory = Directory::open(path.path()).unwrap();
        (path, directory)
    }

    fn get(root: &Directory, target: &str, range: Option<&str>) -> Response<Body> {
        let mut request = Request::get(target).body(()).unwrap();
        if let Some(range) = range {
            request.headers_mut().insert(hyper::header::RANGE, range.parse().unwrap());
        }
        respond(root, &request, &SharedPieces::new(&PieceLimit::of_process()))
    }

    fn header(response: &Response<Body>, name: hyper::header::HeaderName) -> &str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[test]
    fn files_are_found_by_their_escaped_names() {
        let (_path, root) = site();
        let response = get(&root, "/a%20b.txt?query", None);
        assert_eq!((response.status(), header(&response, CONTENT_LENGTH)), (StatusCode::OK, "10"));
        assert_eq!(header(&response, CONTENT_TYPE), "text/plain; charset=utf-8");
        assert_eq!(get(&root, "/a%20b.txt/", None).status(), StatusCode::NOT_FOUND);
        assert_eq!(get(&root, "/nothing", None).status(), StatusCode::NOT_FOUND);
        assert_eq!(get(&root, "/%00", None).status(), StatusCode::BAD_REQUEST);
        assert_eq!(get(&root, "/%2e%2e/%2e%2e/etc/passwd", None).status(), StatusCode::FORBIDDEN);
    }

    #[test]
    fn parts_say_which_part_they_are() {
        let (_path, root) = site();
        let response = get(&root, "/a%20b.txt", Some("bytes=2-4"));
        assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(header(&response, CONTENT_RANGE), "bytes 2-4/10");
        assert_eq!(header(&response, CONTENT_LENGTH), "3");
        let response = get(&root, "/a%20b.txt", Some("bytes=10-"));
        assert_eq!(response.status(), StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!(header(&response, CONTENT_RANGE), "bytes */10");
    }

    #[test]
    fn directories_have_an_index_or_a_listing() {
        let (_path, root) = site();
        let response = get(&root, "/with%20index", None);
        assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY);
        assert_eq!(header(&response, LOCATION), "/with%20index/");
        let response = get(&root, "/with%20index/", None);
        assert_eq!((response.status(), header(&response, CONTENT_LENGTH)), (StatusCode::OK, "8"));
        let response = get(&root, "/", None);
        assert_eq!(header(&response, CONTENT_TYPE), "text/html; charset=utf-8");
        let Body::Left(listing) = response.into_body() else { panic!("a listing is text") };
        let listing = format!("{listing:?}");
        assert!(listing.contains("a%20b.txt") && listing.contains("with%20index/"), "{listing}");
    }
}
