//! Handles the frames of a session.

use super::connect::milliseconds;
use super::{Now, ServerState};
use crate::acl;
use crate::error::ErrorCode;
use crate::watches::ConnectionId;
use crate::wire::opcode;
use crate::wire::reply::{self, Reply};
use crate::wire::request::{Create, CreateKind, Request, WriteRequest};
use crate::wire::{Malformed, Reader};

/// The xid of every answer to a ping, whatever the xid of the ping was.
const PING_XID: i32 = -2;

impl ServerState {
    /// Handles one frame of a session. Fails if the frame is malformed: the caller logs the error and closes the
    /// connection. If the header of the frame could be decoded, the frame has been answered nevertheless, unless it is
    /// an auth.
    pub(crate) fn request(
        &mut self,
        now: Now,
        from: ConnectionId,
        frame: &[u8],
    ) -> Result<(), Malformed> {
        self.traffic.received += 1;
        let Some(connection) = self.connections.get_mut(&from) else { return Ok(()) };
        connection.traffic.received += 1;
        if connection.closing {
            return Ok(());
        }
        let session = connection.session;
        let timeout_ms = connection.timeout_ms;
        let mut reader = Reader::new(frame);
        let xid = reader.int()?;
        let kind = reader.int()?;
        match kind {
            opcode::AUTH => return self.authenticate(from, xid, &mut reader),
            _ if self.closes_at(kind) => {
                self.close(from);
                return Ok(());
            }
            opcode::SASL => {
                // A real server without SASL also accepts the token without checking it, and answers null.
                self.send(from, reply::answer(xid, 0, &Ok(Reply::Path(None))));
                return Ok(());
            }
            _ => {}
        }
        let has_session = self.sessions.touch(session, milliseconds(timeout_ms), now.elapsed_ms);
        if !has_session {
            // The end of a session also closes its connection, so no `connect` has succeeded on this one. Ignore its requests.
            return Ok(());
        }
        let request = match Request::decode(kind, &mut reader) {
            Ok(request) => request,
            Err(malformed) => {
                // As in the real server, a write takes a zxid even if it is malformed.
                if opcode::takes_zxid(kind) {
                    self.zxid = self.assign_zxid();
                }
                self.answer(from, xid, &Err(ErrorCode::Marshalling));
                self.close(from);
                return Err(malformed);
            }
        };
        self.handle(now, from, session, xid, request);
        Ok(())
    }

    /// Returns true if this server imitates ClickHouse Keeper, and Keeper closes the connection at an operation of this kind.
    fn closes_at(&self, kind: i32) -> bool {
        let Some(keeper) = self.limits.keeper else { return false };
        match kind {
            opcode::CREATE_CONTAINER => keeper.closes_at_containers,
            opcode::SASL
            | opcode::WHO_AM_I
            | opcode::GET_EPHEMERALS
            | opcode::GET_ALL_CHILDREN_NUMBER
            | opcode::CREATE_TTL => true,
            _ => false,
        }
    }

    /// Handles a decoded request, and answers it.
    fn handle(&mut self, now: Now, from: ConnectionId, session: i64, xid: i32, request: Request) {
        let result = match request {
            Request::Ping => return self.answer(from, PING_XID, &Ok(Reply::Nothing)),
            Request::CloseSession => {
                self.end_session(session);
                self.answer(from, xid, &Ok(Reply::Nothing));
                return self.close(from);
            }
            Request::Unknown => {
                // The answer has zxid -1, because no zxid was assigned to the request.
                let refusal = Err(ErrorCode::Unimplemented);
                self.send(from, reply::answer(xid, -1, &refusal));
                return self.close(from);
            }
            Request::BareCheck => Err(ErrorCode::Unimplemented),
            // A server assigns a zxid to a reconfiguration, as to a write, before it refuses it.
            Request::Reconfig => {
                self.zxid = self.assign_zxid();
                Err(ErrorCode::ReconfigDisabled)
            }
            // The answer of newer versions of ClickHouse Keeper. Older ones close the connection: see `closes_at`.
            Request::Write(WriteRequest::Create(Create {
                kind: CreateKind::Container, ..
            })) if self.limits.keeper.is_some() => Err(ErrorCode::BadArguments),
            Request::Write(write) => self.write(now, from, write),
            Request::Multi(parts) => self.multi(now, from, parts),
            Request::Read(read) => self.read(from, read),
            Request::Watch(watch) => self.watch(from, watch),
        };
        self.answer(from, xid, &result);
    }

    /// Adds an identity to the connection, or refuses it and closes the connection.
    fn authenticate(
        &mut self,
        from: ConnectionId,
        xid: i32,
        reader: &mut Reader<'_>,
    ) -> Result<(), Malformed> {
        let _kind = reader.int()?;
        let scheme = reader.string()?;
        let auth = reader.buffer()?;
        let Some(connection) = self.connections.get_mut(&from) else { return Ok(()) };
        let address = connection.address.ip();
        let result = acl::authenticate(scheme.as_deref(), auth, address, &mut connection.ids);
        // The answer has zxid 0, because authentication is handled before the frame becomes a request.
        let result = result.map(|()| Reply::Nothing);
        self.send(from, reply::answer(xid, 0, &result));
        if result.is_err() {
            self.close(from);
        }
        Ok(())
    }
}
