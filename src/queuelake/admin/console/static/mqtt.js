// A small MQTT 5 client for browsers: QoS 0 and 1 over a WebSocket, nothing else.
//
// `Reader` and `Writer` are the codec, without I/O; `MqttClient` moves bytes. Whoever uses it gets
// promises for what is answered, and `onMessage` and `onClosed` for what comes by itself.

const CONNECT = 1, CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBSCRIBE = 8, SUBACK = 9;
const UNSUBSCRIBE = 10, UNSUBACK = 11, PINGREQ = 12, PINGRESP = 13, DISCONNECT = 14;
const PACKET_BYTES_MAX = 16 * 1024 * 1024;
const ANSWER_MS_MAX = 10_000;
const KEEPALIVE_S = 30;
const FAILED = 0x80; // reason codes from here on are refusals

const CONTENT_TYPE = 0x03, RESPONSE_TOPIC = 0x08, CORRELATION_DATA = 0x09, REASON = 0x1f;
const ASSIGNED_CLIENT_ID = 0x12, USER_PROPERTY = 0x26;

// How the value of each property is written.
const PROPERTY_KINDS = {
  byte: [0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2a],
  two: [0x13, 0x21, 0x22, 0x23],
  four: [0x02, 0x11, 0x18, 0x27],
  variable: [0x0b],
  text: [CONTENT_TYPE, RESPONSE_TOPIC, ASSIGNED_CLIENT_ID, 0x15, 0x1a, 0x1c, REASON],
  bytes: [CORRELATION_DATA, 0x16],
  pair: [USER_PROPERTY],
};
const KIND_OF = Object.fromEntries(
  Object.entries(PROPERTY_KINDS).flatMap(([kind, ids]) => ids.map((id) => [id, kind])),
);

const REASONS = {
  0x80: "unspecified error",
  0x81: "malformed packet",
  0x82: "protocol error",
  0x83: "not possible here",
  0x84: "protocol version not supported",
  0x85: "client id not valid",
  0x86: "bad user name or password",
  0x87: "not authorized",
  0x88: "server unavailable",
  0x89: "server busy",
  0x8a: "banned",
  0x8b: "the broker is shutting down",
  0x8d: "keep-alive timeout",
  0x8e: "taken over by another connection with this client id",
  0x8f: "topic filter not valid",
  0x90: "topic name not valid",
  0x93: "receive maximum exceeded",
  0x95: "packet too large",
  0x96: "message rate too high",
  0x97: "quota exceeded",
  0x98: "disconnected by an administrator",
  0x99: "payload format not valid",
  0x9a: "retained messages are not supported",
  0x9b: "quality of service not supported",
  0x9e: "shared subscriptions are not supported",
  0xa1: "subscription identifiers are not supported",
  0xa2: "wildcards are not supported",
};

export function reasonText(code) {
  return REASONS[code] || `reason 0x${code.toString(16).padStart(2, "0")}`;
}

export class Writer {
  constructor() {
    this.parts = [];
  }
  byte(value) {
    this.parts.push(Uint8Array.of(value));
    return this;
  }
  two(value) {
    this.parts.push(Uint8Array.of(value >> 8, value & 0xff));
    return this;
  }
  variable(value) {
    do {
      const low = value % 128;
      value = Math.floor(value / 128);
      this.byte(value > 0 ? low | 0x80 : low);
    } while (value > 0);
    return this;
  }
  raw(bytes) {
    this.parts.push(bytes);
    return this;
  }
  bytes(value) {
    if (value.length > 0xffff) throw new Error(`${value.length} bytes; the limit is 65535`);
    return this.two(value.length).raw(value);
  }
  text(value) {
    return this.bytes(new TextEncoder().encode(value));
  }
  properties(inner) {
    const body = inner.join();
    return this.variable(body.length).raw(body);
  }
  join() {
    const whole = new Uint8Array(this.parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of this.parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }
  packet(type, flags = 0) {
    const body = this.join();
    return new Writer().byte((type << 4) | flags).variable(body.length).raw(body).join();
  }
}

export class Reader {
  constructor(bytes) {
    this.all = bytes;
    this.at = 0;
  }
  get left() {
    return this.all.length - this.at;
  }
  raw(length) {
    if (length > this.left) throw new Error("the broker sent a packet which is cut");
    this.at += length;
    return this.all.subarray(this.at - length, this.at);
  }
  byte() {
    return this.raw(1)[0];
  }
  two() {
    const [high, low] = this.raw(2);
    return high * 256 + low;
  }
  four() {
    return this.two() * 65536 + this.two();
  }
  variable() {
    let value = 0;
    for (let scale = 1; scale <= 128 ** 3; scale *= 128) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
    throw new Error("the broker sent a length of more than four bytes");
  }
  bytes() {
    return this.raw(this.two());
  }
  text() {
    return new TextDecoder().decode(this.bytes());
  }
  pair() {
    return [this.text(), this.text()];
  }
  // Properties by their id; user properties as a list of pairs, in their order.
  properties() {
    const found = { user: [] };
    const end = this.variable();
    const inner = new Reader(this.raw(end));
    while (inner.left > 0) {
      const id = inner.variable();
      const kind = KIND_OF[id];
      if (!kind) throw new Error(`the broker sent a property 0x${id.toString(16)}`);
      const value = inner[kind]();
      if (id === USER_PROPERTY) found.user.push(value);
      else found[id] = value;
    }
    return found;
  }
}

// The first whole packet in `bytes`, or null: {type, flags, body, size}.
export function takePacket(bytes) {
  let length = 0;
  for (let index = 1; index <= 4; index++) {
    if (bytes.length <= index) return null;
    length += (bytes[index] & 0x7f) * 128 ** (index - 1);
    if (bytes[index] >= 0x80) continue;
    if (length > PACKET_BYTES_MAX) throw new Error(`the broker sent a packet of ${length} bytes`);
    const size = index + 1 + length;
    if (bytes.length < size) return null;
    const body = bytes.subarray(index + 1, size);
    return { type: bytes[0] >> 4, flags: bytes[0] & 0x0f, body, size };
  }
  throw new Error("the broker sent a length of more than four bytes");
}

export class MqttClient {
  constructor({ onMessage, onClosed }) {
    this.onMessage = onMessage;
    this.onClosed = onClosed;
    this.socket = null;
    this.waiting = new Map(); // packet id, or CONNACK's type -> {resolve, reject, timer}
    this.lastId = 0;
    this.buffer = new Uint8Array(0);
    this.leaving = "";
  }

  // Resolves to the client id in use.
  connect(url, { clientId, username, password }) {
    const socket = new WebSocket(url, "mqtt");
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    const answered = this.wait("connect").then((properties) => {
      this.pinging = setInterval(() => this.send(new Writer().packet(PINGREQ)), KEEPALIVE_S * 500);
      return properties[ASSIGNED_CLIENT_ID] || clientId;
    });
    socket.onopen = () => this.send(connectPacket(clientId, username, password));
    socket.onmessage = (event) => this.receive(new Uint8Array(event.data));
    socket.onclose = () => this.closed();
    return answered;
  }

  // Resolves to the quality of service which was granted.
  subscribe(filter, qos) {
    const id = this.nextId();
    const packet = new Writer().two(id).properties(new Writer()).text(filter).byte(qos);
    return this.ask(id, packet.packet(SUBSCRIBE, 0x02));
  }

  unsubscribe(filter) {
    const id = this.nextId();
    const packet = new Writer().two(id).properties(new Writer()).text(filter);
    return this.ask(id, packet.packet(UNSUBSCRIBE, 0x02));
  }

  // Resolves when it has left (QoS 0) or when the broker has it (QoS 1).
  async publish({ topic, payload, qos, retain, contentType, user }) {
    const id = qos > 0 ? this.nextId() : 0;
    const properties = new Writer();
    if (contentType) properties.byte(CONTENT_TYPE).text(contentType);
    for (const [name, value] of user || []) properties.byte(USER_PROPERTY).text(name).text(value);
    const writer = new Writer().text(topic);
    if (qos > 0) writer.two(id);
    writer.properties(properties).raw(payload);
    const packet = writer.packet(PUBLISH, (qos << 1) | (retain ? 1 : 0));
    if (qos > 0) return this.ask(id, packet);
    this.send(packet);
    return 0;
  }

  close() {
    if (!this.socket) return;
    this.leaving = "disconnected";
    this.send(new Writer().packet(DISCONNECT));
    this.socket.close();
  }

  // Inside

  nextId() {
    do this.lastId = (this.lastId % 0xffff) + 1;
    while (this.waiting.has(this.lastId));
    return this.lastId;
  }

  ask(id, packet) {
    const answer = this.wait(id);
    this.send(packet);
    return answer;
  }

  wait(id) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.delete(id);
        reject(new Error(`the broker did not answer within ${ANSWER_MS_MAX / 1000} s`));
        if (id === "connect" && this.socket) this.socket.close();
      }, ANSWER_MS_MAX);
      this.waiting.set(id, { resolve, reject, timer });
    });
  }

  answer(id, code, value, words) {
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    this.waiting.delete(id);
    clearTimeout(waiting.timer);
    if (code < FAILED) waiting.resolve(value);
    else waiting.reject(new Error(words || reasonText(code)));
  }

  send(packet) {
    if (this.socket && this.socket.readyState === WebSocket.OPEN) this.socket.send(packet);
  }

  receive(data) {
    const joined = new Uint8Array(this.buffer.length + data.length);
    joined.set(this.buffer);
    joined.set(data, this.buffer.length);
    this.buffer = joined;
    try {
      let packet;
      while ((packet = takePacket(this.buffer))) {
        this.buffer = this.buffer.subarray(packet.size);
        this.handle(packet.type, packet.flags, new Reader(packet.body));
      }
    } catch (error) {
      this.leaving = error.message;
      this.socket.close();
    }
  }

  handle(type, flags, reader) {
    if (type === CONNACK) {
      reader.byte(); // whether a session was there: ours never is
      const code = reader.byte();
      const properties = reader.properties();
      this.answer("connect", code, properties, properties[REASON]);
    } else if (type === PUBLISH) {
      this.handlePublish(flags, reader);
    } else if (type === PUBACK) {
      const id = reader.two();
      const code = reader.left > 0 ? reader.byte() : 0;
      const properties = reader.left > 0 ? reader.properties() : {};
      this.answer(id, code, code, properties[REASON]);
    } else if (type === SUBACK || type === UNSUBACK) {
      const id = reader.two();
      const properties = reader.properties();
      const code = reader.byte();
      this.answer(id, code, code, properties[REASON]);
    } else if (type === DISCONNECT) {
      const code = reader.left > 0 ? reader.byte() : 0;
      const properties = reader.left > 0 ? reader.properties() : {};
      this.leaving = properties[REASON] || (code ? reasonText(code) : "closed by the broker");
    } else if (type !== PINGRESP) {
      throw new Error(`the broker sent a packet of type ${type}`);
    }
  }

  handlePublish(flags, reader) {
    const qos = (flags >> 1) & 0x03;
    const topic = reader.text();
    const id = qos > 0 ? reader.two() : 0;
    const properties = reader.properties();
    const payload = reader.raw(reader.left).slice();
    if (qos > 0) this.send(new Writer().two(id).packet(PUBACK));
    this.onMessage({
      topic,
      payload,
      qos,
      retain: (flags & 1) === 1,
      duplicate: (flags & 8) === 8,
      user: properties.user,
      contentType: properties[CONTENT_TYPE] || "",
      responseTopic: properties[RESPONSE_TOPIC] || "",
    });
  }

  closed() {
    clearInterval(this.pinging);
    this.socket = null;
    const words = this.leaving || "the connection was lost, or nobody listens there";
    for (const [, waiting] of this.waiting) {
      clearTimeout(waiting.timer);
      waiting.reject(new Error(words));
    }
    this.waiting.clear();
    this.onClosed(words);
  }
}

function connectPacket(clientId, username, password) {
  let flags = 0x02; // a clean start; without an expiry the session ends with the connection
  if (username) flags |= 0x80;
  if (password) flags |= 0x40;
  const writer = new Writer().text("MQTT").byte(5).byte(flags).two(KEEPALIVE_S);
  writer.properties(new Writer()).text(clientId);
  if (username) writer.text(username);
  if (password) writer.text(password);
  return writer.packet(CONNECT);
}
