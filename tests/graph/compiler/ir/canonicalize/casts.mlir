// run cpu: canonicalize
// A cast of a cast that lost nothing is one cast; through a narrower type it stays.
func.func @main(%x: bf16[n]) -> (bf16[n], f64[n], bf16[n]) attributes {heddle.symbols = {n = [1, 9]}} {
  %wide = cast(%x) {dtype = f32} : (bf16[n]) -> f32[n]
  %back = cast(%wide) {dtype = bf16} : (f32[n]) -> bf16[n]
  %wider = cast(%wide) {dtype = f64} : (f32[n]) -> f64[n]
  %whole = cast(%wide) {dtype = i32} : (f32[n]) -> i32[n]
  %lossy = cast(%whole) {dtype = bf16} : (i32[n]) -> bf16[n]
  return %back, %wider, %lossy : bf16[n], f64[n], bf16[n]
}

// gives
module {
  func.func @main(%arg0: bf16[n]) -> (bf16[n], f64[n], bf16[n]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = cast(%arg0) {dtype = f64} : (bf16[n]) -> f64[n]
    %1 = cast(%arg0) {dtype = i32} : (bf16[n]) -> i32[n]
    %2 = cast(%1) {dtype = bf16} : (i32[n]) -> bf16[n]
    return %arg0, %0, %2 : bf16[n], f64[n], bf16[n]
  }
}
