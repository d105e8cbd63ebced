// One colour a region, the same in every view. Pixels are 0xAABBGGRR, as canvas memory has them on the machines there are.

export type Pixel = number;

const HUES = [256, 62, 158, 18, 304, 205, 96, 345, 130, 280, 40, 228];
const LIGHTNESS = [0.76, 0.68, 0.83];

function channel(linear: number): number {
  const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
  return Math.round(Math.min(1, Math.max(0, value)) * 255);
}

/** OKLCH as a pixel: https://bottosson.github.io/posts/oklab/ */
export function oklch(lightness: number, chroma: number, hue: number): Pixel {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return pixel(
    channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    channel(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  );
}

export function pixel(red: number, green: number, blue: number): Pixel {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** `share` of `over`, the rest `under`. */
export function mix(under: Pixel, over: Pixel, share: number): Pixel {
  const part = Math.round(share * 256);
  const rest = 256 - part;
  const redBlue = (((over & 0xff00ff) * part + (under & 0xff00ff) * rest) >>> 8) & 0xff00ff;
  const green = (((over & 0xff00) * part + (under & 0xff00) * rest) >>> 8) & 0xff00;
  return (0xff000000 | redBlue | green) >>> 0;
}

export function css(colour: Pixel): string {
  return `rgb(${colour & 255} ${(colour >>> 8) & 255} ${(colour >>> 16) & 255})`;
}

/** The colour of the nth most important region: neighbours in that order are far apart. */
export function regionColour(place: number): Pixel {
  const round = Math.floor(place / HUES.length);
  return oklch(LIGHTNESS[round % LIGHTNESS.length], 0.125 - 0.02 * (round % 2), HUES[place % HUES.length] + 11 * round);
}

export interface Scheme {
  dark: boolean;
  background: Pixel;
  stripe: Pixel;
  life: Pixel;
  accent: Pixel;
  text: string;
  faint: string;
  line: string;
  selection: string;
  dimmed: Pixel;
}

export const SCHEMES: Record<"light" | "dark", Scheme> = {
  light: {
    dark: false, background: pixel(255, 255, 255), stripe: pixel(250, 251, 253), life: pixel(240, 243, 249), accent: pixel(84, 120, 196),
    text: "#1b2230", faint: "#5b6577", line: "#e1e5ec", selection: "#10151f", dimmed: pixel(222, 226, 233),
  },
  dark: {
    dark: true, background: pixel(22, 25, 32), stripe: pixel(25, 28, 36), life: pixel(33, 38, 48), accent: pixel(112, 148, 222),
    text: "#e6eaf2", faint: "#98a3b6", line: "#2c323e", selection: "#ffffff", dimmed: pixel(50, 56, 68),
  },
};

/** What the calls of each region are painted with. */
export interface Palette {
  solid: Uint32Array;
  pale: Uint32Array;
  hatch: Uint32Array;
}

export function makePalette(colours: Uint32Array, scheme: Scheme, shown: Uint8Array | null): Palette {
  const solid = Uint32Array.from(colours, (colour, name) => (shown && !shown[name] ? scheme.dimmed : colour));
  return {
    solid,
    pale: solid.map((colour) => mix(scheme.background, colour, scheme.dark ? 0.22 : 0.26)),
    hatch: solid.map((colour) => mix(scheme.background, colour, scheme.dark ? 0.6 : 0.62)),
  };
}
