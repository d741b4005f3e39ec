//! How many queues of a TAP interface are open, in any process: read from the kernel with `RTM_GETLINK`.
//!
//! The kernel lets any number of processes attach queues to one multi-queue interface and spreads the frames over all
//! of them. It maintains the number and removes a queue when its last descriptor is closed, also when a process
//! crashes, so the number is always current, and includes the queues of every program.

use std::io;

use crate::sys;

/// `struct nlmsghdr` and `struct ifinfomsg` (rtnetlink(7)), without attributes.
const HEADER_LEN: usize = 16;
const INFO_LEN: usize = 16;
/// `nlmsg_type` of an error, of the request and of its answer.
const NLMSG_ERROR: u16 = 2;
const RTM_GETLINK: u16 = 18;
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
/// Attributes: the interface's name; the link info; nested in it the driver's data; nested in that the attached queues.
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_TUN_NUM_QUEUES: u16 = 8;
/// The two high bits of an attribute's type are flags (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;

/// How many queues of multi-queue interface `name` are attached to a descriptor and enabled. `None`: there is no such
/// interface, or it has one queue only (the kernel refuses a second opener of that itself), or the kernel is older than
/// 4.16 and does not report it.
///
/// # Errors
/// No socket can be opened, or the kernel does not answer.
pub fn open_queues(name: &str) -> io::Result<Option<u32>> {
    sys::ask_rtnetlink(&request(name)).map(|answer| parse(&answer))
}

fn request(name: &str) -> Vec<u8> {
    let attribute_len = 4 + name.len() + 1;
    let len = HEADER_LEN + INFO_LEN + attribute_len.next_multiple_of(4);
    let mut bytes = vec![0; len];
    bytes[0..4].copy_from_slice(&(len as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let attribute = &mut bytes[HEADER_LEN + INFO_LEN..];
    attribute[0..2].copy_from_slice(&(attribute_len as u16).to_ne_bytes());
    attribute[2..4].copy_from_slice(&IFLA_IFNAME.to_ne_bytes());
    attribute[4..4 + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// The number in an answer. An error message (there is no such interface) has none.
fn parse(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind == NLMSG_ERROR || kind != RTM_NEWLINK {
        return None;
    }
    let link_info = find(answer.get(HEADER_LEN + INFO_LEN..)?, IFLA_LINKINFO)?;
    let number = find(find(link_info, IFLA_INFO_DATA)?, IFLA_TUN_NUM_QUEUES)?;
    number.try_into().ok().map(u32::from_ne_bytes)
}

/// The value of the first attribute of this type.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(attributes.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?) & TYPE_MASK;
        let value = attributes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// An answer about an interface with three open queues.
    fn answer() -> Vec<u8> {
        let data = [attribute(7, &[1]), attribute(IFLA_TUN_NUM_QUEUES, &3u32.to_ne_bytes())].concat();
        let info = [attribute(1, b"tun\0"), attribute(IFLA_INFO_DATA | 0x8000, &data)].concat();
        let mut bytes = vec![0; HEADER_LEN + INFO_LEN];
        bytes[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
        [bytes, attribute(IFLA_IFNAME, b"tap0\0"), attribute(IFLA_LINKINFO, &info)].concat()
    }

    #[test]
    fn the_number_is_found_among_the_attributes() {
        assert_eq!(parse(&answer()), Some(3));
    }

    #[test]
    fn an_answer_that_ends_early_or_is_a_refusal_has_no_number() {
        let mut answer = answer();
        for len in 0..answer.len() {
            assert_eq!(parse(&answer[..len]), None, "{len} bytes");
        }
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(parse(&answer), None);
    }

    #[test]
    fn lengths_that_lie_end_the_search() {
        for len in [0u16, 1, 3, 5, 0xffff] {
            let mut bytes = vec![0; 8];
            bytes[0..2].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(find(&bytes, 1), None, "{len}");
        }
    }
}
