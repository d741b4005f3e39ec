//! An HTTP downloader: hyper on top of `heddle::tokio`; prints the speed and the status of the connection.
//!
//! ```text
//! cargo run --release --example download
//! cargo run --release --example download -- --tap tap0 --addr 10.9.0.2/24 http://10.9.0.1:8000/file --output file
//! ```

mod ends;

use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use ends::Ends;
use heddle::Stack;
use heddle::tokio::{TcpListener, TcpStream};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;

#[derive(Parser)]
#[command(about = "Downloads a file over HTTP/1.1")]
struct Arguments {
    #[command(flatten)]
    place: ends::Place,
    /// Where to write the body (default: nowhere)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Over memory: size of the file on the server, in MiB
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    size: usize,
    /// URL to download, as http://10.9.0.1:8000/file; names are not looked up
    #[arg(default_value = "http://10.0.0.1/")]
    url: Uri,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let tasks = tokio::task::LocalSet::new();
    let output = arguments.output.as_ref().map(File::create).transpose()?;
    match arguments.place.open()? {
        Ends::Memory { server, client } => {
            let listener = TcpListener::bind(&server, ends::memory_address(80))?;
            tasks.spawn_local(serve(listener, Bytes::from(vec![b'.'; arguments.size << 20])));
            tasks.block_on(&runtime, download(&client, &arguments.url, output))
        }
        Ends::Tap { stack, .. } => tasks.block_on(&runtime, download(&stack, &arguments.url, output)),
    }
}

/// Answers every request with `body`.
async fn serve(listener: TcpListener, body: Bytes) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let body = body.clone();
        let service = hyper::service::service_fn(move |_: Request<Incoming>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(body.clone()))))
        });
        tokio::task::spawn_local(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

async fn download(stack: &Stack, url: &Uri, mut output: Option<File>) -> Result<(), Box<dyn Error>> {
    let address = address(url)?;
    let stream = TcpStream::connect(stack, address).await?;
    println!("connected to {address} from {}", stream.local_addr()?);
    // Another handle on the same connection, for its status; only hyper reads and writes.
    let connection = stream.get_ref().clone();
    let (mut requests, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(driver);
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path).header("host", address.to_string()).body(Empty::<Bytes>::new())?;
    let start = Instant::now();
    let response = requests.send_request(request).await?;
    println!("GET {url}: {}", response.status());
    let mut body = response.into_body();
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            received += data.len();
            output.as_mut().map_or(Ok(()), |file| file.write_all(data))?;
        }
    }
    let took = start.elapsed();
    let rate = received as f64 / took.as_secs_f64() / 1e6;
    println!("{received} bytes in {took:.2?}: {rate:.0} MB/s");
    if let Some(status) = connection.status() {
        println!("segments of {} bytes, receive buffer of {} bytes", status.mss, status.receive_buffer);
    }
    Ok(())
}

/// Host and port of an `http` URL.
fn address(url: &Uri) -> Result<SocketAddr, String> {
    let wrong = || format!("{url} cannot be downloaded: write http://, an IP address, a port if it is not 80, a path");
    if url.scheme_str() != Some("http") {
        return Err(wrong());
    }
    let host = url.host().ok_or_else(wrong)?.trim_matches(['[', ']']);
    Ok(SocketAddr::new(host.parse().map_err(|_| wrong())?, url.port_u16().unwrap_or(80)))
}
