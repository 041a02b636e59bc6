// The try-it page: a client in the browser, between the forms and `mqtt.js`.
//
// Everything which came over the network is shown through {{ }}, as text. Nothing is kept: neither
// the password nor the messages outlive the page.

import { MqttClient } from "queuelake-mqtt/mqtt.js";

const MESSAGES_MAX = 500;
const SHOWN_BYTES_MAX = 16 * 1024;

export default {
  props: { addresses: Object },
  template: `
    <div class="ql-try">
      <div class="ql-try-side">
        <q-card flat bordered><q-card-section>
          <h2>Connection</h2>
          <form @submit.prevent="state === 'off' ? connect() : disconnect()" autocomplete="off">
            <q-input v-model="url" label="Address" dense outlined :disable="state !== 'off'" />
            <q-input v-model="clientId" label="Client id" dense outlined :disable="state !== 'off'" />
            <div class="ql-try-row">
              <q-input v-model="username" label="User" dense outlined autocomplete="off"
                :disable="state !== 'off'" />
              <q-input v-model="password" label="Password" type="password" dense outlined
                autocomplete="new-password" :disable="state !== 'off'" />
            </div>
            <div class="ql-try-row">
              <span class="ql-try-state" role="status" :data-state="state">{{ words }}</span>
              <q-btn type="submit" no-caps unelevated :loading="state === 'connecting'"
                :color="state === 'on' ? undefined : 'primary'" :outline="state === 'on'"
                :label="state === 'on' ? 'Disconnect' : 'Connect'" />
            </div>
          </form>
        </q-card-section></q-card>
        <q-card flat bordered><q-card-section>
          <h2>Subscribe</h2>
          <form @submit.prevent="subscribe">
            <div class="ql-try-row">
              <q-input v-model="filter" label="Topic filter" dense outlined class="ql-grow"
                placeholder="fleet/+/status" />
              <q-select v-model="filterQos" :options="[0, 1]" label="QoS" dense outlined options-dense
                class="ql-narrow" />
              <q-btn type="submit" no-caps unelevated color="primary" label="Subscribe"
                :disable="state !== 'on' || !filter" />
            </div>
          </form>
          <div class="ql-try-chips" v-if="filters.length">
            <q-chip v-for="one in filters" :key="one.filter" removable dense outline color="primary"
              :label="one.filter + ' · QoS ' + one.qos" @remove="unsubscribe(one.filter)"
              :remove-aria-label="'Unsubscribe from ' + one.filter" />
          </div>
        </q-card-section></q-card>
        <q-card flat bordered><q-card-section>
          <h2>Publish</h2>
          <form @submit.prevent="publish">
            <q-input v-model="topic" label="Topic" dense outlined placeholder="fleet/truck-1/status" />
            <q-input v-model="payload" label="Payload" type="textarea" rows="3" autogrow dense outlined
              input-class="ql-mono" />
            <q-input v-model="properties" label="User properties, name=value on each line"
              type="textarea" rows="1" autogrow dense outlined input-class="ql-mono" />
            <div class="ql-try-row">
              <q-select v-model="qos" :options="[0, 1]" label="QoS" dense outlined options-dense
                class="ql-narrow" />
              <q-checkbox v-model="retain" label="Retain" dense />
              <span class="ql-grow"></span>
              <q-btn type="submit" no-caps unelevated color="primary" label="Publish"
                :disable="state !== 'on' || !topic" />
            </div>
          </form>
        </q-card-section></q-card>
      </div>
      <q-card flat bordered class="ql-try-messages"><q-card-section>
        <div class="ql-try-row">
          <h2 class="ql-grow">Messages<template v-if="messages.length"> · {{ messages.length }}</template></h2>
          <q-btn-toggle v-model="view" :options="views" dense no-caps unelevated toggle-color="primary"
            aria-label="How payloads are shown" padding="2px 10px" />
          <q-btn flat dense no-caps :icon="paused ? 'play_arrow' : 'pause'" @click="paused = !paused"
            :label="paused ? 'Resume' : 'Pause'" />
          <q-btn flat dense no-caps icon="clear_all" label="Clear" @click="messages = []"
            :disable="!messages.length" />
        </div>
        <p class="ql-note" v-if="!messages.length">
          Connect, subscribe to a topic filter, and messages appear here. Whatever is sent from this page
          is a real publish, by the user above.
        </p>
        <ol class="ql-try-list" aria-live="polite">
          <li v-for="one in messages" :key="one.number" :data-sent="one.sent">
            <div class="ql-try-head">
              <q-icon :name="one.sent ? 'north_east' : 'south_west'" :color="one.sent ? 'primary' : 'positive'"
                :aria-label="one.sent ? 'sent' : 'received'" role="img" />
              <b>{{ one.topic }}</b>
              <span class="ql-note">QoS {{ one.qos }}<template v-if="one.retain"> · retained</template><template
                v-if="one.duplicate"> · duplicate</template><template v-if="one.contentType"> · {{ one.contentType
                }}</template> · {{ one.time }}<template v-if="one.outcome"> · {{ one.outcome }}</template></span>
            </div>
            <pre>{{ shown(one.payload) }}</pre>
            <div class="ql-try-chips" v-if="one.user.length">
              <span v-for="(pair, index) in one.user" :key="index" class="ql-try-property">{{ pair[0] }} = {{ pair[1] }}</span>
            </div>
          </li>
        </ol>
      </q-card-section></q-card>
    </div>
  `,
  data() {
    return {
      url: "",
      clientId: `console-${Math.random().toString(36).slice(2, 8)}`,
      username: "",
      password: "",
      state: "off",
      words: "not connected",
      filter: "",
      filterQos: 1,
      filters: [],
      topic: "",
      payload: "",
      properties: "",
      qos: 1,
      retain: false,
      view: "auto",
      views: ["auto", "text", "hex"].map((value) => ({ value, label: value })),
      messages: [],
      paused: false,
      number: 0,
    };
  },
  mounted() {
    this.url = webSocketUrl(this.addresses);
    if (!this.url) this.words = "this broker has no WebSocket listener: see listeners.ws";
  },
  beforeUnmount() {
    if (this.client) this.client.close();
  },
  methods: {
    async connect() {
      this.state = "connecting";
      this.words = "connecting ...";
      this.client = new MqttClient({
        onMessage: (message) => this.add(message, false),
        onClosed: (words) => this.closed(words),
      });
      const { clientId, username, password } = this;
      try {
        this.clientId = await this.client.connect(this.url, { clientId, username, password });
        this.state = "on";
        this.words = "connected";
      } catch (error) {
        this.closed(error.message);
      }
    },
    disconnect() {
      this.client.close();
    },
    closed(words) {
      this.state = "off";
      this.words = words;
      this.filters = [];
    },
    async subscribe() {
      const filter = this.filter;
      await this.attempt(async () => {
        const qos = await this.client.subscribe(filter, this.filterQos);
        this.filters = [...this.filters.filter((one) => one.filter !== filter), { filter, qos }];
      });
    },
    async unsubscribe(filter) {
      await this.attempt(async () => {
        await this.client.unsubscribe(filter);
        this.filters = this.filters.filter((one) => one.filter !== filter);
      });
    },
    async publish() {
      const message = {
        topic: this.topic,
        payload: new TextEncoder().encode(this.payload),
        qos: this.qos,
        retain: this.retain,
        user: pairs(this.properties),
      };
      await this.attempt(async () => {
        const code = await this.client.publish(message);
        const outcome = code === 0x10 ? "stored by the broker; nobody subscribed" : "";
        this.add({ ...message, outcome }, true);
      });
    },
    async attempt(work) {
      try {
        await work();
      } catch (error) {
        this.$q.notify({ message: error.message, color: "negative", timeout: 6000 });
      }
    },
    add(message, sent) {
      if (this.paused && !sent) return;
      const time = new Date().toLocaleTimeString();
      this.messages.unshift(Object.freeze({ ...message, sent, time, number: this.number++ }));
      if (this.messages.length > MESSAGES_MAX) this.messages.length = MESSAGES_MAX;
    },
    shown(payload) {
      return payloadText(payload, this.view);
    },
  },
};

// A WebSocket of the broker as this browser can reach it; a page over https may use wss only.
function webSocketUrl(addresses) {
  const address = location.protocol === "https:" ? addresses.wss : addresses.ws || addresses.wss;
  if (!address) return "";
  const url = new URL(address);
  if (["0.0.0.0", "[::]", "127.0.0.1", "[::1]", "localhost"].includes(url.hostname)) {
    url.hostname = location.hostname;
  }
  url.pathname = "/mqtt";
  return url.href;
}

function pairs(text) {
  return text
    .split("\n")
    .filter((line) => line.trim())
    .map((line) => {
      const [name, ...value] = line.split("=");
      return [name.trim(), value.join("=").trim()];
    });
}

function payloadText(payload, view) {
  const part = payload.subarray(0, SHOWN_BYTES_MAX);
  const rest = payload.length - part.length;
  const more = rest > 0 ? `\n... and ${rest} bytes more` : "";
  if (view === "hex") return hex(part) + more;
  try {
    const text = new TextDecoder("utf-8", { fatal: view === "auto" }).decode(part);
    return (view === "auto" ? indented(text) : text) + more;
  } catch {
    return hex(part) + more;
  }
}

function indented(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = Array.from(bytes.subarray(at, at + 16));
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(48)} ${letters}`);
  }
  return lines.join("\n");
}
