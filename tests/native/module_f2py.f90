! A kernel that f2py makes a module of. It runs without the GIL.
subroutine work(steps)
   use scope_profiler
   implicit none
   integer, intent(in) :: steps
   integer :: i
!f2py threadsafe

   call sp_begin_name("f2py.work")
   do i = 1, steps
      call sp_begin_name("f2py.step")
      call sp_end_name("f2py.step")
   end do
   call sp_end_name("f2py.work")
end subroutine work
