// One scenario of MQTT.js against a broker: node scenario.cjs URL LEVEL SCENARIO PREFIX
//
// Every scenario throws when the broker does not do what the standard says; the exit code is the
// verdict. PREFIX keeps topics and client ids of parallel runs apart.
"use strict";

const assert = require("node:assert/strict");
const mqtt = require("mqtt");

const [url, levelText, scenario, prefix] = process.argv.slice(2);
const level = Number(levelText);
const STEP_MS_MAX = 10_000;

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} in ${STEP_MS_MAX} ms`)), STEP_MS_MAX);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// A connected client with `inbox`: messages wait there until `next` takes them.
async function connect(name, options = {}) {
  const properties = level === 5 ? { properties: { sessionExpiryInterval: 300 } } : {};
  const client = mqtt.connect(url, {
    clientId: `${prefix}-${name}`,
    protocolVersion: level,
    reconnectPeriod: 0,
    ...(options.clean === false ? properties : {}),
    ...options,
  });
  const inbox = [];
  const waiting = [];
  client.on("message", (topic, payload, packet) => {
    const message = { topic, payload, qos: packet.qos, retain: packet.retain };
    if (waiting.length) waiting.shift()(message);
    else inbox.push(message);
  });
  client.next = () =>
    inbox.length
      ? Promise.resolve(inbox.shift())
      : within(new Promise((resolve) => waiting.push(resolve)), `message for ${name}`);
  client.inbox = inbox;
  const connack = await within(
    new Promise((resolve, reject) => {
      client.on("connect", resolve);
      client.on("error", reject);
    }),
    `CONNACK for ${name}`,
  );
  client.sessionPresent = connack.sessionPresent;
  return client;
}

function bytes(text) {
  return Buffer.from(text, "utf8");
}

const scenarios = {
  async qos() {
    const sub = await connect("sub");
    const pub = await connect("pub");
    await sub.subscribeAsync(`${prefix}/qos/+`, { qos: 2 });
    for (const qos of [0, 1, 2]) {
      await within(pub.publishAsync(`${prefix}/qos/${qos}`, `m${qos}`, { qos }), `ack ${qos}`);
      const got = await sub.next();
      assert.equal(got.topic, `${prefix}/qos/${qos}`);
      assert.equal(got.payload.toString(), `m${qos}`);
      assert.equal(got.qos, qos);
    }
    await Promise.all([sub.endAsync(), pub.endAsync()]);
  },

  async retained() {
    const pub = await connect("pub");
    await pub.publishAsync(`${prefix}/retained`, "kept", { qos: 1, retain: true });
    const sub = await connect("sub");
    await sub.subscribeAsync(`${prefix}/retained`, { qos: 1 });
    const got = await sub.next();
    assert.equal(got.payload.toString(), "kept");
    assert.equal(got.retain, true);
    await pub.publishAsync(`${prefix}/retained`, "", { qos: 1, retain: true });
    await Promise.all([sub.endAsync(), pub.endAsync()]);
  },

  async will() {
    const sub = await connect("sub");
    await sub.subscribeAsync(`${prefix}/will`, { qos: 1 });
    const dying = await connect("dying", {
      will: { topic: `${prefix}/will`, payload: bytes("gone"), qos: 1, retain: false },
    });
    dying.stream.destroy();
    assert.equal((await sub.next()).payload.toString(), "gone");
    await sub.endAsync();
  },

  async shared() {
    const members = [await connect("m0"), await connect("m1")];
    for (const member of members) {
      await member.subscribeAsync(`$share/team/${prefix}/shared`, { qos: 1 });
    }
    const pub = await connect("pub");
    const sent = [];
    for (let i = 0; i < 20; i += 1) {
      sent.push(`s${String(i).padStart(2, "0")}`);
      await pub.publishAsync(`${prefix}/shared`, sent[i], { qos: 1 });
    }
    const deadline = Date.now() + STEP_MS_MAX;
    while (members[0].inbox.length + members[1].inbox.length < 20 && Date.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const got = members.flatMap((m) => m.inbox.map((message) => message.payload.toString()));
    assert.deepEqual(got.sort(), sent);
    assert.ok(members.every((m) => m.inbox.length > 0), "one member got everything");
    await Promise.all([...members, pub].map((client) => client.endAsync()));
  },

  async resume() {
    const first = await connect("keeper", { clean: false });
    await first.subscribeAsync(`${prefix}/resume`, { qos: 2 });
    await first.endAsync();
    const pub = await connect("pub");
    for (const qos of [1, 2]) {
      await pub.publishAsync(`${prefix}/resume`, `while-away-${qos}`, { qos });
    }
    const again = await connect("keeper", { clean: false });
    assert.equal(again.sessionPresent, true);
    assert.equal((await again.next()).payload.toString(), "while-away-1");
    assert.equal((await again.next()).payload.toString(), "while-away-2");
    await Promise.all([again.endAsync(), pub.endAsync()]);
  },

  async large() {
    const payload = Buffer.alloc(1024 * 1024, "queuelake");
    const sub = await connect("sub");
    const pub = await connect("pub");
    await sub.subscribeAsync(`${prefix}/large`, { qos: 2 });
    for (const qos of [0, 1, 2]) {
      await within(pub.publishAsync(`${prefix}/large`, payload, { qos }), `ack ${qos}`);
      assert.ok((await sub.next()).payload.equals(payload), `QoS ${qos} payload differs`);
    }
    await Promise.all([sub.endAsync(), pub.endAsync()]);
  },
};

scenarios[scenario]().then(
  () => process.exit(0),
  (error) => {
    console.error(`${scenario} level ${level} at ${url}: ${error.stack}`);
    process.exit(1);
  },
);
