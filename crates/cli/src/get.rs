//! `heddle get`: fetches one file over HTTP/1.1, on Heddle's own stack.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use heddle::Stack;
use heddle::tokio::TcpStream;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::task::block_in_place;

use crate::failure::Failure;
use crate::network::{DeviceName, NetworkArgs};
use crate::ping::seconds;
use crate::runtime::{self, Stop};
use crate::serve;

/// Fetch a file over HTTP from Heddle's own stack.
///
/// Over `mem`, the default, the server is a second stack in the same process that serves the current directory (or
/// --root). Without -o the content goes to standard output. Redirections are reported, not followed.
#[derive(Arguments)]
#[command(after_help = "\
Examples:
  heddle get http://10.0.0.1/README.md -o copy.md               from a server in this process; does not need root
  heddle get 'http://[fd00::1]/README.md' -o copy.md            the same over IPv6
  heddle get http://10.0.0.1:8000/big -o big --dev tap:heddle0 --addr 10.0.0.2/24
                                                                from this machine's kernel, as root: give its end of
                                                                the interface an address (`ip addr add 10.0.0.1/24
                                                                dev heddle0`) and run `python3 -m http.server` there
Exit status: 0 if the whole file was received, 1 if not, 2 for a usage error.")]
pub struct Args {
    /// URL to fetch: http://ADDRESS[:PORT]/PATH, with an IPv6 address in brackets (names are not resolved)
    #[arg(value_name = "URL")]
    url: Target,

    /// Write the content to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Name for the Host header, for servers with several sites at one address
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Seconds to wait for the connection, for the answer, and for each further part of it
    #[arg(short, long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,

    /// Directory that the server in this process serves; only with mem
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,

    /// Print the result as one JSON object (needs -o)
    #[arg(short, long, requires = "output")]
    json: bool,

    #[command(flatten)]
    network: NetworkArgs,
}

/// A supported URL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    url: String,
    /// The value of the Host header.
    authority: String,
    address: SocketAddr,
    path: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Target, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{error}; write http://10.0.0.1/path"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err("heddle does not support TLS: use http://".to_owned()),
            _ => return Err("write the whole URL, as in http://10.0.0.1/path".to_owned()),
        }
        let authority = uri.authority().ok_or("write the whole URL, as in http://10.0.0.1/path")?;
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let address: IpAddr = bare.parse().map_err(|_| {
            format!("heddle does not resolve names: write the address of {host} in the URL, and add --host {host}")
        })?;
        let port = authority.port_u16().unwrap_or(80);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Target {
            url: url.to_owned(),
            authority: authority.as_str().rsplit('@').next().unwrap_or_default().to_owned(),
            address: SocketAddr::new(address, port),
            path: path.to_owned(),
        })
    }
}

/// The result, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    url: String,
    status: u16,
    bytes: u64,
    seconds: f64,
    file: Option<PathBuf>,
    arch: String,
}

/// Runs the command.
///
/// # Errors
/// The file could not be fetched or written.
pub fn run(args: Args) -> Result<(), Failure> {
    args.network.check_headroom()?;
    let runtime = runtime::new()?;
    let (network, server) = match &args.network.dev {
        DeviceName::Mem => {
            let (network, peer) = args.network.with_peer(args.url.address.ip())?;
            let serving = runtime.block_on(async { serve::http_peer(&peer, args.url.address.port(), &args.root) })?;
            (network, Some((runtime.spawn(serving), peer)))
        }
        _ => (args.network.open()?, None),
    };
    let report = runtime.block_on(async {
        let mut stop = Stop::listen()?;
        let cancelled = || Failure::failed("interrupted; the part that was received is kept");
        stop.or(fetch(&args, &network.stack)).await.ok_or_else(cancelled)?
    })?;
    drop(server);
    network.finish()?;
    if args.json {
        println!("{}", serde_json::to_string(&report).map_err(Failure::failed)?);
    } else {
        eprintln!("{}", report.line());
    }
    Ok(())
}

impl Report {
    fn line(&self) -> String {
        let rate = self.bytes as f64 * 8.0 / self.seconds.max(1e-9);
        let place = self.file.as_ref().map_or(String::new(), |file| format!(" to {}", file.display()));
        format!("{}{place} in {:.2} s ({:.2} Gb/s)", BinaryBytes(self.bytes), self.seconds, rate / 1e9)
    }
}

/// Runs `step` within the time-out.
async fn in_time<T, E>(args: &Args, what: &str, step: impl Future<Output = Result<T, E>>) -> Result<T, Failure>
where
    E: std::fmt::Display,
{
    match tokio::time::timeout(args.timeout, step).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Failure::Failed(format!("{}: {what}: {error}", args.url.url))),
        Err(_) => Err(Failure::Failed(format!(
            "{}: {what}: no data from {} for {} s; check the address, and that the server is running",
            args.url.url,
            args.url.address,
            args.timeout.as_secs_f64()
        ))),
    }
}

async fn fetch(args: &Args, stack: &Stack) -> Result<Report, Failure> {
    let started = Instant::now();
    let response = ask(args, stack).await?;
    let status = response.status();
    if status != StatusCode::OK {
        return Err(refused(args, &response));
    }
    let mut sink = Sink::open(args.output.as_deref())?;
    let bytes = receive(args, response.into_body(), &mut sink).await?;
    sink.finish()?;
    Ok(Report {
        url: args.url.url.clone(),
        status: status.as_u16(),
        bytes,
        seconds: started.elapsed().as_secs_f64(),
        file: args.output.clone(),
        arch: stack.architecture().to_string(),
    })
}

async fn ask(args: &Args, stack: &Stack) -> Result<Response<Incoming>, Failure> {
    let stream = in_time(args, "connecting", TcpStream::connect(stack, args.url.address)).await?;
    let _ = stream.set_nodelay(true);
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = in_time(args, "connecting", handshake).await?;
    // It ends with the response, which also reports its error, if any.
    tokio::spawn(connection);
    let host = args.host.as_deref().unwrap_or(&args.url.authority);
    let request = Request::get(&args.url.path)
        .header(HOST, host)
        .header(USER_AGENT, concat!("heddle/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "*/*")
        .body(Empty::<Bytes>::new())
        .map_err(|error| Failure::Usage(format!("{host} cannot be used as a Host header: {error}")))?;
    in_time(args, "sending the request", sender.send_request(request)).await
}

fn refused(args: &Args, response: &Response<Incoming>) -> Failure {
    let status = response.status();
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let remedy = match location {
        Some(location) if status.is_redirection() => format!("it has moved: fetch {location}"),
        _ if status.is_client_error() => "check the path".to_owned(),
        _ => "ask the operator of the server".to_owned(),
    };
    Failure::Failed(format!("{}: the server answered {status}; {remedy}", args.url.url))
}

async fn receive(args: &Args, mut body: Incoming, sink: &mut Sink) -> Result<u64, Failure> {
    let progress = progress(body.size_hint().exact());
    let mut bytes = 0;
    loop {
        let frame = in_time(args, "receiving", async { body.frame().await.transpose() }).await;
        let frame = frame.inspect_err(|_| progress.abandon()).map_err(|failure| sink.kept(failure, bytes))?;
        let Some(frame) = frame else { break };
        if let Ok(data) = frame.into_data() {
            block_in_place(|| sink.write(&data)).inspect_err(|_| progress.abandon())?;
            bytes += data.len() as u64;
            progress.inc(data.len() as u64);
        }
    }
    progress.finish_and_clear();
    Ok(bytes)
}

/// On standard error, if that is a terminal.
fn progress(length: Option<u64>) -> ProgressBar {
    let (bar, template) = match length {
        Some(length) => {
            (ProgressBar::new(length), "{percent:>3}% {bytes}/{total_bytes} {binary_bytes_per_sec}, {eta} left")
        }
        None => (ProgressBar::no_length(), "{bytes} {binary_bytes_per_sec}, length unknown"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Destination of the content.
struct Sink {
    path: Option<PathBuf>,
    out: Box<dyn Write + Send>,
}

impl Sink {
    fn open(path: Option<&Path>) -> Result<Sink, Failure> {
        let out: Box<dyn Write + Send> = match path {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(File::create(path).map_err(|error| {
                let path = path.display();
                Failure::Failed(format!(
                    "cannot write {path}: {error}; choose a file in a directory that you may write to"
                ))
            })?),
        };
        Ok(Sink { path: path.map(Path::to_owned), out })
    }

    fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        self.out.write_all(data).map_err(|error| self.failure(&error))
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        match &self.path {
            // The reader of the output has closed it.
            None if error.kind() == io::ErrorKind::BrokenPipe => Failure::Reported,
            None => Failure::Failed(format!("cannot write to standard output: {error}; use -o FILE")),
            Some(path) => Failure::Failed(format!(
                "cannot write all of {}: {error}; free space on the disk, or choose another file with -o",
                path.display()
            )),
        }
    }

    /// Adds the stored bytes to the message of a failure.
    fn kept(&self, failure: Failure, bytes: u64) -> Failure {
        match (failure, &self.path) {
            (Failure::Failed(message), Some(path)) if bytes > 0 => {
                Failure::Failed(format!("{message} ({bytes} bytes are in {})", path.display()))
            }
            (failure, _) => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_hold_addresses() {
        let target: Target = "http://10.0.0.1/a/b?c=d".parse().unwrap();
        assert_eq!((target.address, &*target.path), ("10.0.0.1:80".parse().unwrap(), "/a/b?c=d"));
        assert_eq!(target.authority, "10.0.0.1");
        let target: Target = "http://[fd00::1]:8080".parse().unwrap();
        assert_eq!((target.address, &*target.path), ("[fd00::1]:8080".parse().unwrap(), "/"));
        assert_eq!(target.authority, "[fd00::1]:8080");
    }

    #[test]
    fn other_urls_are_refused_with_the_remedy() {
        for (url, remedy) in [
            ("http://example.com/", "--host example.com"),
            ("https://10.0.0.1/", "http://"),
            ("10.0.0.1/", "http://10.0.0.1/path"),
            ("ftp://10.0.0.1/", "http://10.0.0.1/path"),
            ("", "http://10.0.0.1/path"),
        ] {
            let message = url.parse::<Target>().unwrap_err();
            assert!(message.contains(remedy), "{url}: {message}");
        }
    }
}
