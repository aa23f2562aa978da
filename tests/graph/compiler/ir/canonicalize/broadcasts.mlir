// run cpu: canonicalize
// Sentences' mean over a mask, which is cast once for each row, and multiplied as it is; what only
// the broadcasts have the sizes of stays.
func.func @main(%x: f32[b, s, 64], %mask: i64[b, s, 1], %row: f32[64]) -> (f32[b, 1, 64], f32[b, 1, 64], f32[s, 64]) attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
  %wide = broadcast_to(%mask) {shape = ["b", "s", "64"]} : (i64[b, s, 1]) -> i64[b, s, 64]
  %kept = cast(%wide) {dtype = f32} : (i64[b, s, 64]) -> f32[b, s, 64]
  %product = mul(%x, %kept) : (f32[b, s, 64], f32[b, s, 64]) -> f32[b, s, 64]
  %sum = sum(%product) {axis = 1} : (f32[b, s, 64]) -> f32[b, 1, 64]
  %count = sum(%kept) {axis = 1} : (f32[b, s, 64]) -> f32[b, 1, 64]
  %rows = broadcast_to(%row) {shape = ["s", "64"]} : (f32[64]) -> f32[s, 64]
  %more = add(%rows, %row) : (f32[s, 64], f32[64]) -> f32[s, 64]
  return %sum, %count, %more : f32[b, 1, 64], f32[b, 1, 64], f32[s, 64]
}

// gives
module {
  func.func @main(%arg0: f32[b, s, 64], %arg1: i64[b, s, 1], %arg2: f32[64]) -> (f32[b, 1, 64], f32[b, 1, 64], f32[s, 64]) attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
    %0 = cast(%arg1) {dtype = f32} : (i64[b, s, 1]) -> f32[b, s, 1]
    %1 = broadcast_to(%0) {shape = ["b", "s", "64"]} : (f32[b, s, 1]) -> f32[b, s, 64]
    %2 = mul(%arg0, %0) : (f32[b, s, 64], f32[b, s, 1]) -> f32[b, s, 64]
    %3 = sum(%2) {axis = 1 : i64} : (f32[b, s, 64]) -> f32[b, 1, 64]
    %4 = sum(%1) {axis = 1 : i64} : (f32[b, s, 64]) -> f32[b, 1, 64]
    %5 = broadcast_to(%arg2) {shape = ["s", "64"]} : (f32[64]) -> f32[s, 64]
    %6 = add(%5, %arg2) : (f32[s, 64], f32[64]) -> f32[s, 64]
    return %3, %4, %6 : f32[b, 1, 64], f32[b, 1, 64], f32[s, 64]
  }
}
