/** Where the names of towns are: the larger ones, and all others. See tools/towns.mjs. */
declare module "virtual:towns" {
  const urls: { cities: string; towns: string };
  export default urls;
}
