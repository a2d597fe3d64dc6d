// What a tile of the world is, for the worker that makes it and for the page.

/** Positions in a tile are 0 to this. */
export const EXTENT = 4096;
export interface TileAsked {
  z: number;
  x: number;
  y: number;
}

export interface Lines {
  lengths: Uint32Array;
  points: Int16Array;
}

export interface Town {
  name: string;
  /** From the tile's left and upper edge, in its widths. */
  x: number;
  y: number;
  thousands: number;
}

export interface TileAnswer extends TileAsked {
  land: Lines;
  coasts: Lines;
  borders: Lines;
  towns: Town[];
}

/** How many thousands of people a town has at least that is named at a zoom. */
export const townsFrom = (z: number): number => [Infinity, Infinity, Infinity, 4000, 1200, 500, 150, 60, 20, 6, 0][Math.min(z, 10)]!;
